"""What an experiment is, in one YAML file: the question, the collection, the arms, the draws. Knows no data."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pydantic
import yaml

from datamask_pipeline.errors import ConfigurationError, UnknownNameError
from datamask_pipeline.experiment.grid import LEAST_DRAWS, GridConfig
from datamask_pipeline.experiment.planted import PlantConfig
from datamask_pipeline.families import METRICS, SCORERS
from datamask_pipeline.near_copies.index import LEAST_THRESHOLD, MOST_THRESHOLD
from datamask_pipeline.pipeline.config import Name, PipelineConfig, config_model
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.settings import Settings, execution_field, validated
from datamask_pipeline.yaml_text import parse_yaml, what_is_wrong

#: Stands in the file for the folder of data that the command is given.
DATA = "${data}"


#: Settings of a training that the experiment sets, and what of its own they follow from.
_SET_FOR_ALL = {
    "seed": "`seed`",
    "token_budget": "proxy.epochs",
    "checkpoint_every_steps": "proxy.checkpoints",
    "log_every_steps": "proxy.checkpoints",
}


class ArmConfig(Settings):
    """How an arm chooses from half of a pool; without any setting, at random."""

    select: dict[str, Any] = pydantic.Field(
        default_factory=dict,
        description="The engine's settings, its `policy` among them; none: random documents.",
    )
    collapse: float | None = pydantic.Field(
        None,
        ge=LEAST_THRESHOLD,
        le=MOST_THRESHOLD,
        description="Near-copies at this cosine are collapsed before: the best by quality stands for them.",
    )
    lengths_of: str | None = pydantic.Field(
        None, description="Random documents, of the lengths that this arm before it chose."
    )
    shuffled_share: float = pydantic.Field(
        0.0, ge=0, le=1, description="Share of the chosen documents whose words are put in random order."
    )
    ratio: float | None = pydantic.Field(
        None,
        gt=0,
        lt=1,
        description="Share of the half's tokens that the engine chooses; random ones of these documents are learnt. Null: "
        "as many as are learnt.",
    )
    weights: dict[str, float] | None = pydantic.Field(
        None, description="Weight of each quality score of the chain; null: equal ones."
    )
    subset: str | None = execution_field(
        None,
        description="File or folder of a subset that somebody else chose, Parquet or JSON Lines with `id`, `text` or "
        "`content`: those of its documents that lie in the half, in random order. Null: the arm chooses itself.",
    )

    @pydantic.field_validator("weights")
    @classmethod
    def _some_weight(cls, weights: dict[str, float] | None) -> dict[str, float] | None:
        if weights and not any(weights.values()):
            raise ValueError(
                "the weights are all 0; give a scorer another, or leave `weights` out for equal ones"
            )
        return weights

    @property
    def is_control(self) -> bool:
        """Whether shuffled words are all that tells it from random documents, so that they have to be found."""
        return self.shuffled_share > 0 and self.model_copy(update={"shuffled_share": 0.0}) == ArmConfig()

    def result_config(self) -> dict[str, Any]:
        """Every setting; draws of arms without the later ones are what they were before there were such settings."""
        found = super().result_config()
        return {
            name: value
            for name, value in found.items()
            if name not in ("ratio", "weights") or value is not None
        }


class ProxyConfig(Settings):
    """A small network that learns each arm's tokens, beside the trigram model."""

    epochs: int = pydantic.Field(
        1, ge=1, le=64, description="How often it reads them; its token budget follows from that."
    )
    checkpoints: int = pydantic.Field(
        3,
        ge=1,
        le=64,
        description="How often along its training it is asked, at equal distances, the end among them.",
    )
    model: dict[str, Any] = pydantic.Field(
        default_factory=dict,
        description="Settings as of `pretrain`; seed, token budget and checkpoints are the experiment's.",
    )

    @property
    def architecture(self) -> PretrainConfig:
        """The settings of a training without its budget, seed and checkpoints.

        Raises:
            ConfigurationError: a setting is wrong, or the experiment's.
        """
        for name, instead in _SET_FOR_ALL.items():
            if name in self.model:
                raise ConfigurationError(
                    f"proxy.model.{name}: the experiment sets it for all arms alike; see {instead}"
                )
        return validated(PretrainConfig, self.model, "proxy.model")

    def pretrain(self, num_tokens: int, seed: int) -> PretrainConfig:
        """The settings of one training.

        Raises:
            ConfigurationError: a setting is wrong, or the experiment's; there are too few steps for the checkpoints.
        """
        budgeted = self.architecture.model_copy(
            update={"token_budget": self.epochs * num_tokens, "seed": seed}
        )
        steps = budgeted.num_steps
        # With fewer steps, draws of almost equally many tokens could have different numbers of checkpoints.
        if steps < self.checkpoints * (self.checkpoints - 1):
            raise ConfigurationError(
                f"proxy.checkpoints: {self.checkpoints} are too many for {steps} steps; lower it, or raise proxy.epochs"
            )
        every = math.ceil(steps / self.checkpoints)
        return budgeted.model_copy(update={"checkpoint_every_steps": every, "log_every_steps": every})


class PoolConfig(Settings):
    """What is chosen from."""

    first_tokens: int | None = pydantic.Field(
        None,
        ge=8,
        description="Every document is cut to its first so many tokens, shorter ones are left out: all arms have equal "
        "lengths. Null: documents as they are.",
    )
    planted: PlantConfig | None = pydantic.Field(
        None,
        description="What is planted beside the collection's documents, embedded and scored as they are; the report says "
        "how much of it every arm chose. Null: nothing.",
    )
    proxy: ProxyConfig | None = pydantic.Field(
        None,
        description="Networks of this pool, of another architecture or budget than the experiment's. Null: those.",
    )

    def result_config(self) -> dict[str, Any]:
        """Of the documents; draws of pools where nothing is planted are what they were before there was such a setting."""
        found = super().result_config()
        return {
            name: value
            for name, value in found.items()
            if name != "proxy" and (name, value) != ("planted", None)
        }


class ExperimentConfig(Settings):
    """The whole experiment, written down before it runs."""

    name: Name = pydantic.Field(description="What it is called; its results lie under it in the record.")
    question: str = pydantic.Field(min_length=1, description="What it shall answer.")
    contrast: tuple[str, str] = pydantic.Field(
        description="The two arms whose difference answers it: the first less the second."
    )
    baseline: str = pydantic.Field("random", description="The arm that every other one is compared with.")
    again: str = pydantic.Field("random_again", description="The second random arm: it must not differ.")
    redraws: int = pydantic.Field(
        20,
        ge=4,
        multiple_of=2,
        description="Draws of half of the pool; two in a row are the halves of one cut.",
    )
    ratio: float = pydantic.Field(
        0.2, gt=0, lt=1, description="Tokens that every arm learns from, of the half's."
    )
    num_random: int = pydantic.Field(
        40,
        ge=0,
        description="Random subsets of each half, whose differences show whether intervals hold what they say; 0: only "
        "the two random arms are held against each other. Where networks are trained and nothing is said it is 0: each "
        "would be one network more a draw.",
    )
    proxy: ProxyConfig | None = pydantic.Field(
        None,
        description="Networks are trained, and their bits are what arms are compared by; where they predict held-out "
        "documents worse than the trigram model of the same tokens, nothing is ranked. Null: the trigram model alone.",
    )
    seed: int = pydantic.Field(0, ge=0, description="Every draw follows from it.")
    pools: dict[Name, PoolConfig] = pydantic.Field(
        {"whole": PoolConfig()}, min_length=1, description="Pools by name."
    )
    arms: dict[Name, ArmConfig] = pydantic.Field(
        min_length=2, description="Arms by name, in the order of the tables."
    )
    grid: GridConfig | None = pydantic.Field(
        None,
        description="A sweep: settings tried in every combination, each an arm after the ones above; the report ends in a "
        "recommendation. Null: the arms above alone.",
    )
    chain: dict[str, Any] = pydantic.Field(
        description="The configuration of the chain, up to its index, tokenizer and questions; one release."
    )

    @pydantic.model_validator(mode="before")
    @classmethod
    def _no_network_for_controls_unasked(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "num_random" in given:
            return given
        pools = given["pools"].values() if isinstance(given.get("pools"), dict) else ()
        if any(isinstance(each, dict) and each.get("proxy") is not None for each in (given, *pools)):
            return {**given, "num_random": 0}
        return given

    @pydantic.model_validator(mode="after")
    def _a_sweep_can_be_judged(self) -> Self:
        if self.grid is None:
            return self
        if self.redraws < LEAST_DRAWS:
            raise ValueError(
                f"grid: half of the pairs of draws choose and the others judge; raise redraws to {LEAST_DRAWS} or more"
            )
        if any(self.proxy_of(pool) for pool in self.pools):
            raise ValueError(
                "grid and proxy: a sweep trains no network; name the few arms that its report finds in a file of their own"
            )
        if self.grid.reference not in self.arms:
            raise ValueError(
                f"grid.reference: {self.grid.reference!r} is no arm; the arms are: {', '.join(self.arms)}"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _names_are_arms(self) -> Self:
        named = {"contrast": self.contrast, "baseline": (self.baseline,), "again": (self.again,)}
        for field, names in named.items():
            for name in names:
                if name not in self.arms:
                    random = (
                        "" if field == "contrast" else f"; add `{name}: {{}}`, random documents as a control"
                    )
                    raise ValueError(
                        f"{field}: {name!r} is no arm; the arms are: {', '.join(self.arms)}{random}"
                    )
        if self.contrast[0] == self.contrast[1]:
            raise ValueError(
                f"contrast: {self.contrast[0]!r} twice; name the two arms whose difference is the answer"
            )
        if self.again == self.baseline:
            raise ValueError(
                f"again: {self.again!r} is the baseline; name a second arm of random documents, which shows what chance does"
            )
        doses = [arm.shuffled_share for arm in self.arms.values() if arm.shuffled_share]
        if twice := sorted({dose for dose in doses if doses.count(dose) > 1}):
            raise ValueError(f"arms: two have the shuffled_share {twice[0]}; give each control another")
        for name in (self.baseline, self.again):
            if self.arms[name] != ArmConfig():
                raise ValueError(f"arm {name!r} has to be random: give it no setting")
        if self.num_random == 1:
            raise ValueError(
                "num_random: one random subset has no other to be held against; give 0, 2 or more"
            )
        before: list[str] = []
        for name, arm in self.arms.items():
            if arm.lengths_of is not None and arm.lengths_of not in before:
                raise ValueError(f"arms.{name}.lengths_of: {arm.lengths_of!r} is no arm before it")
            if arm.lengths_of is not None and (arm.select or arm.collapse):
                raise ValueError(
                    f"arms.{name}: random documents of given lengths; leave `select` and `collapse` out"
                )
            if arm.subset is not None and (arm.select or arm.collapse or arm.lengths_of):
                raise ValueError(
                    f"arms.{name}: a subset is chosen already; leave `select`, `collapse` and `lengths_of` out"
                )
            if arm.ratio is not None and not arm.select:
                raise ValueError(f"arms.{name}.ratio: random documents are what they are; leave it out")
            if arm.ratio is not None and arm.ratio < self.ratio:
                raise ValueError(
                    f"arms.{name}.ratio: {arm.ratio:g} is less than the experiment's ratio of {self.ratio:g}, which "
                    "every arm learns; raise it, or lower the experiment's"
                )
            if arm.weights is not None and not (arm.select or arm.collapse):
                raise ValueError(f"arms.{name}.weights: nothing reads quality; leave it out")
            before.append(name)
        return self

    def proxy_of(self, pool: str) -> ProxyConfig | None:
        """The networks that are trained on a pool's arms; ``None``: the trigram model alone is asked."""
        return self.pools[pool].proxy or self.proxy

    def sequence_lengths(self, pool: str) -> dict[str, int]:
        """Tokens of a sequence of the pool's networks, by the setting that gives them; none without networks."""
        proxy, own = self.proxy_of(pool), self.pools[pool].proxy
        if proxy is None:
            return {}
        where = "proxy" if own is None else f"pools.{pool}.proxy"
        return {f"{where}.model.sequence_length": proxy.architecture.sequence_length}

    def draws(self, numbers: Sequence[int]) -> list[int]:
        """The draws of these numbers, each once, in their order; all for none.

        Raises:
            ConfigurationError: there is no draw of such a number.
        """
        for number in numbers:
            if not 0 <= number < self.redraws:
                raise ConfigurationError(
                    f"draw {number}: experiment {self.name!r} has draws 0 to {self.redraws - 1}"
                )
        return sorted(set(numbers)) or list(range(self.redraws))

    def engine(self, arm: str, num_tokens: int, seed: int) -> SelectionConfig | None:
        """The engine's settings for one draw; ``None`` for random documents.

        Raises:
            ConfigurationError: a setting is wrong, or nothing reads it.
        """
        given = self.arms[arm].select
        if not given:
            return None
        for name in ("ratio", "num_documents", "num_tokens", "seed"):
            if name in given:
                raise ConfigurationError(
                    f"arms.{arm}.select.{name}: the experiment sets it for all arms alike"
                )
        where = f"arms.{arm}.select"
        engine = SelectionConfig.of({**given, "num_tokens": num_tokens, "seed": seed}, where)
        METRICS.make_each(
            engine.diversity_weights,
            engine.diversity_options,
            f"{where}.diversity_options",
            f"{where}.diversity",
        )
        return engine


def load_experiment(
    path: Path, data: Path, pools: Sequence[str] = ()
) -> tuple[ExperimentConfig, PipelineConfig]:
    """Read an experiment's file.

    Args:
        path: The YAML file.
        data: The folder that ``${data}`` stands for.
        pools: Only these pools of the file; all for no name.

    Raises:
        UnknownNameError: the file has no such pool.
        ConfigurationError: no such file, broken YAML, or a setting that is unknown or out of bounds.
    """
    try:
        values = parse_yaml(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigurationError(
            f"experiment {str(path)!r} is not YAML {what_is_wrong(error)}; correct it there"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        why = " ".join(str(error).split())
        raise ConfigurationError(
            f"experiment {str(path)!r} cannot be read: {why}; correct or name the YAML file"
        ) from error
    if not isinstance(values, dict):
        raise ConfigurationError(f"{path} holds no mapping of settings")
    values = _placed(values, str(data))
    try:
        values = _with_grid(values)
        experiment = validated(ExperimentConfig, values)
        for arm in experiment.arms:
            experiment.engine(arm, 1, 0)
        _require_architectures(experiment)
        chain = validated(config_model(), {"name": experiment.name, **experiment.chain}, "chain")
        for name, settings in experiment.arms.items():
            if settings.subset is not None and not Path(settings.subset).exists():
                raise ConfigurationError(f"arms.{name}.subset: no such file or folder: {settings.subset}")
            for scorer in settings.weights or ():
                if scorer not in chain.score.scorers:
                    raise ConfigurationError(
                        f"arms.{name}.weights: no scorer {scorer!r}; chain.score.scorers are: "
                        f"{', '.join(chain.score.scorers)}"
                    )
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    if len(chain.releases) != 1:
        raise ConfigurationError(
            f"{path}: chain.releases: an experiment has one release, not {len(chain.releases)}"
        )
    for name in pools:
        if name not in experiment.pools:
            raise UnknownNameError("pool", name, experiment.pools)
    wanted = {name: pool for name, pool in experiment.pools.items() if not pools or name in pools}
    experiment = experiment.model_copy(update={"pools": wanted})
    _refuse_blind_scorers(experiment, chain)
    return experiment, chain


def _require_architectures(experiment: ExperimentConfig) -> None:
    """Refuse networks that cannot be built, before anything is trained."""
    if experiment.proxy is not None:
        _ = experiment.proxy.architecture
    for name, pool in experiment.pools.items():
        try:
            _ = None if pool.proxy is None else pool.proxy.architecture
        except ConfigurationError as error:
            raise ConfigurationError(f"pools.{name}.{error}") from error


def _refuse_blind_scorers(experiment: ExperimentConfig, chain: PipelineConfig) -> None:
    """Refuse to plant where a scorer reads neither texts nor vectors: planted documents have nothing else."""
    planting = [name for name, pool in experiment.pools.items() if pool.planted is not None]
    if not planting:
        return
    for scorer in SCORERS.make_each(chain.score.scorers, chain.score.options, "chain.score.options"):
        if "text" not in scorer.columns and not scorer.needs_embeddings:
            raise ConfigurationError(
                f"pools.{planting[0]}.planted: scorer {scorer.name!r} reads its score from column {scorer.columns[0]!r}, "
                "which says nothing of planted documents; leave the scorer out, or plant nothing"
            )


def _with_grid(values: dict[str, Any]) -> dict[str, Any]:
    """The file's values with the arms of its sweep among the others."""
    if not isinstance(values.get("grid"), dict) or not isinstance(values.get("arms"), dict):
        return values
    tried = validated(GridConfig, values["grid"], "grid").arms()
    for name in tried:
        if name in values["arms"]:
            raise ConfigurationError(f"grid: arm {name!r} stands under arms, too; rename that one")
    return {**values, "arms": {**values["arms"], **tried}}


def _placed(value: Any, data: str) -> Any:
    """The file's values with the folder of data in its place."""
    if isinstance(value, str):
        return value.replace(DATA, data)
    if isinstance(value, dict):
        return {key: _placed(item, data) for key, item in value.items()}
    return [_placed(item, data) for item in value] if isinstance(value, list) else value
