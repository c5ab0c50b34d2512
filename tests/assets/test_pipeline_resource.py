"""The chain as a resource: a run keeps to one configuration."""

from pathlib import Path

import yaml

from resources import PipelineResource


def test_a_run_keeps_to_the_file_as_its_first_step_read_it(tiny_config_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "edited.yaml"
    values = yaml.safe_load(tiny_config_file.read_text())
    path.write_text(yaml.safe_dump(values | {"select": values.get("select", {}) | {"lamb": 0.25}}))
    resource = PipelineResource(config=str(path), settings={"select.ratio": 0.2})
    assert resource.pipeline(run="first").config.select["lamb"] == 0.25
    path.write_text("ratoi: 0.1")
    again = resource.pipeline(run="first").config
    assert (again.select["lamb"], again.select["ratio"]) == (0.25, 0.2)
    path.write_text(yaml.safe_dump(values | {"select": values.get("select", {}) | {"lamb": 0.75}}))
    assert resource.pipeline(run="first").config.select["lamb"] == 0.25
    assert resource.pipeline(run="second").config.select["lamb"] == 0.75
    assert resource.pipeline().config.select["lamb"] == 0.75
