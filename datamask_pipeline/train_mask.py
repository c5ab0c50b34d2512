"""The paper's learner on a Parquet file, with upstream's command line. Knows no other learner.

``python -m datamask_pipeline.train_mask --input in.parquet --output out.parquet --n_epochs 5000 --algorithm DiSF
--partial 0.1 --max_lr 10 --min_lr 1 --n_rollout 128 --select_ratio 0.3 --init quality --lamb 0.5``; the better
learners are under ``datamask select``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datamask_pipeline.errors import ConfigurationError, DataMaskError
from datamask_pipeline.families import with_members
from datamask_pipeline.printable import inert
from datamask_pipeline.selection.config import SelectionConfig

LEARNER = "policy_gradient"
SETTINGS = {
    "device": "device",
    "n_epochs": "num_epochs",
    "algorithm": "diversity",
    "partial": "partial",
    "max_lr": "max_lr",
    "min_lr": "min_lr",
    "n_rollout": "num_rollouts",
    "select_ratio": "ratio",
    "init": "init",
    "lamb": "lamb",
    "normalisation": "normalisation",
    "seed": "seed",
}
"""The engine's name of what an option sets."""


def parser() -> argparse.ArgumentParser:
    """Upstream's options, and a few of ours."""
    model = with_members(SelectionConfig, {"policy": LEARNER})
    defaults = {name: field.default for name, field in model.model_fields.items()}
    options = argparse.ArgumentParser(
        prog="train_mask",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = options.add_argument
    add("--input", type=Path, required=True, help="Parquet with chunk_id, quality_score and feature_arr")
    add("--output", type=Path, required=True, help="the same rows with selected, logit and probability")
    add("--device", default=defaults["device"], help="cpu or cuda:N (%(default)s)")
    add("--n_epochs", type=int, default=defaults["num_epochs"], help="epochs (%(default)s)")
    add("--algorithm", default="DiSF", help="diversity metric: DiSF, Facility, Pair_simi, ... (%(default)s)")
    add(
        "--partial",
        type=float,
        default=defaults["partial"],
        help="share of the block in a batch (0.1, or what more it takes for a batch to select two documents)",
    )
    add("--max_lr", type=float, default=defaults["max_lr"], help="first learning rate (%(default)s)")
    add("--min_lr", type=float, default=defaults["min_lr"], help="last learning rate (%(default)s)")
    add("--n_rollout", type=int, default=defaults["num_rollouts"], help="masks an epoch, G (%(default)s)")
    add("--select_ratio", type=float, default=defaults["ratio"], help="share selected (%(default)s)")
    add("--init", choices=("same", "quality"), default=defaults["init"], help="first logits (%(default)s)")
    add("--lamb", type=float, default=defaults["lamb"], help="weight of quality, 0..1 (%(default)s)")
    add(
        "--normalisation",
        choices=("affine", "none"),
        default=defaults["normalisation"],
        help="what --lamb weighs: affine, terms of which 0 is a random mask and 1 an estimate of the best each reaches "
        "alone; none, raw values, as upstream's does (%(default)s). DiSF is a plain sum of squared correlations here, "
        "which upstream's predecessor divides by 10 000: its --lamb L is 10000 L / (1 + 9999 L) here",
    )
    add("--seed", type=int, default=defaults["seed"], help="seed of every draw (%(default)s)")
    add("--checkpoint", type=Path, help="folder for resuming a killed run")
    add("--plot", type=Path, help="write the optimisation curves here, as .png, .pdf or .svg")
    add(
        "--ablate_rollout",
        type=int,
        nargs="+",
        default=[],
        metavar="G",
        help="learn with these numbers of rollouts too and draw their curves; needs --plot",
    )
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns the exit status, 1 with one line on standard error for what was refused."""
    options = parser()
    given = options.parse_args(arguments)
    if given.ablate_rollout and given.plot is None:
        options.error("--ablate_rollout draws its curves: give --plot")
    try:
        _run(given)
    except DataMaskError as error:
        print(f"error: {inert(_by_option(str(error)))}", file=sys.stderr)
        return 1
    return 0


def _by_option(message: str) -> str:
    """What is refused of a setting, told by the option that sets it."""
    options = {setting: f"--{option}" for option, setting in SETTINGS.items()}
    message = re.sub(r"(^|; )(\w+)(?=: )", lambda at: at[1] + options.get(at[2], at[2]), message)
    return re.sub(r"`(\w+)`", lambda at: f"`{options.get(at[1], at[1])}`", message)


def _run(given: argparse.Namespace) -> None:
    from tqdm import tqdm

    from datamask_pipeline.mask_file import check_output, check_plot, read_input, users_names, write_output
    from datamask_pipeline.report.plots import objectives_figure
    from datamask_pipeline.selection.api import check_settings, select_documents

    named = {setting: getattr(given, option) for option, setting in SETTINGS.items()}
    settings = {"policy": LEARNER, **named}
    check_settings(**settings)
    for num_rollouts in given.ablate_rollout:
        try:
            check_settings(**settings | {"num_rollouts": num_rollouts})
        except ConfigurationError as error:
            raise ConfigurationError(str(error).replace("num_rollouts", "--ablate_rollout")) from error
    check_output(given.output, given.input)
    if given.plot is not None:
        check_plot(given.plot)
    data = read_input(given.input)

    def learn(num_rollouts: int, checkpoint: Path | None) -> Any:
        with tqdm(total=given.n_epochs, unit="epoch", desc=f"G={num_rollouts}", disable=None) as bar:

            def advance(line: str, step: int, num_steps: int | None) -> None:
                bar.update(step - bar.n)
                bar.set_postfix_str(line, refresh=False)

            return select_documents(
                data.embeddings,
                data.quality,
                ids=data.ids,
                checkpoint_dir=checkpoint,
                progress=advance,
                **settings | {"num_rollouts": num_rollouts},
            )

    with users_names(given.input, {"ids": "chunk_id", "embeddings": "feature_arr"}):
        result = learn(given.n_rollout, given.checkpoint)
    write_output(given.output, given.input, result)
    if given.plot is not None:
        curves = {f"G = {given.n_rollout}": result.curve}
        curves |= {f"G = {count}": learn(count, None).curve for count in given.ablate_rollout}
        objectives_figure(curves).savefig(given.plot)
    value = result.objective
    print(
        f"selected {int(result.mask.sum())} of {len(result.mask)} documents: objective {value.value:.6f} "
        f"(random {value.random:z.6f}), quality {value.quality:.6f}, diversity {value.diversity:.6f}"
    )


if __name__ == "__main__":
    sys.exit(main())
