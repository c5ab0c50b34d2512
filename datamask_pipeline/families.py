"""The families of members that are found by name: what each is called, where its files are, how one is built.

A family is a package with one member a file. The file names its member's class in an attribute of the module; the
class carries its own ``name`` and its ``Config``, and is built as ``Member(config)``. Another installed package
adds a member with an entry point ``name = "module:Class"`` in the group of the family's package. Knows no member.
"""

from __future__ import annotations

import re
import types
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules, resolve_name
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from datamask_pipeline.errors import ConfigurationError, UnknownNameError, suggestion
from datamask_pipeline.settings import Settings, validated

if TYPE_CHECKING:
    from datamask_pipeline.diversity.base import DiversityMetric
    from datamask_pipeline.evaluation.layouts.base import Layout
    from datamask_pipeline.quality.base import Scorer
    from datamask_pipeline.selection.policies.base import SelectionPolicy
    from datamask_pipeline.selection.policy_gradient.estimators.base import GradientEstimator
    from datamask_pipeline.sources.base import Source
    from datamask_pipeline.sources.formats.base import FileFormat

Member = TypeVar("Member")
Config = TypeVar("Config", bound=Settings)
LABEL = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Family(Generic[Member]):
    """A family of members.

    Attributes:
        package: Where its files are, e.g. ``datamask_pipeline.quality``; also the group of its entry points.
        attribute: What a member's file calls its class, e.g. ``SCORER``; other files have none.
        base: The class that members derive from, as ``module:Class``.
        kind: What a message calls a member, e.g. ``quality scorer``.
        labelled: Whether a member may be used several times, as ``name:label``.
    """

    package: str
    attribute: str
    base: str
    kind: str
    labelled: bool = False

    def classes(self) -> dict[str, type[Member]]:
        """Every member by name: those of the package's files, then those of entry points.

        Raises:
            ConfigurationError: a file or entry point gives no such class, or two members share a name.
        """
        return dict(_classes(self))

    def names(self) -> list[str]:
        """Names of the members, sorted."""
        return sorted(self.classes())

    def configs(self) -> dict[str, type[Settings]]:
        """The members' settings by their names, sorted."""
        classes: dict[str, Any] = self.classes()
        return {name: classes[name].Config for name in sorted(classes)}

    def find(self, name: str, where: str = "") -> type[Member]:
        """The member of that name; of ``name:label`` where the family has labels.

        Args:
            name: The name.
            where: Path of the setting that gives it.

        Raises:
            UnknownNameError: there is none.
            ConfigurationError: the label is no word.
        """
        bare, colon, label = name.partition(":") if self.labelled else (name, "", "")
        classes = self.classes()
        if bare not in classes:
            raise UnknownNameError(self.kind, bare, classes, where)
        if colon and not LABEL.fullmatch(label):
            raise ConfigurationError(
                f"label {label!r} of {self.kind} {name!r} must be letters, digits, _ and -"
            )
        return classes[bare]

    def config(self, name: str, options: Mapping[str, Any] | None = None, where: str = "") -> Any:
        """The member's ``Config`` from plain values.

        Args:
            name: The member's name.
            options: Its settings as plain values.
            where: Path of the options in what the user wrote; by default the name.

        Raises:
            UnknownNameError: no member has that name.
            ConfigurationError: an option is missing, misspelt or out of range.
        """
        member: Any = self.find(name)
        config: type[Settings] = member.Config
        return validated(config, dict(options or {}), where or name)

    def make(self, name: str, options: Mapping[str, Any] | None = None, where: str = "") -> Member:
        """The member of that name, built with the options given; arguments and errors as of `config`."""
        build: Any = self.find(name)
        member: Member = build(self.config(name, options, where))
        if self.labelled:
            member.name = name  # type: ignore[attr-defined]
        return member

    def beside(self, name: str, settings: Settings) -> Member:
        """The member of that name, its settings taken from those beside which they stand."""
        build: Any = self.find(name)
        given = {field: getattr(settings, field) for field in settings.model_fields_set}
        model = with_members(build.Config, given)
        own = {field: value for field, value in given.items() if field in model.model_fields}
        member: Member = build(model.model_validate(own))
        return member

    def make_each(
        self,
        names: Collection[str],
        options: Mapping[str, Mapping[str, Any]],
        where: str,
        named_at: str = "",
    ) -> list[Member]:
        """A member for each name, in order.

        Args:
            names: Names of the members.
            options: Settings of some of them by name.
            where: Path of the options in what the user wrote, e.g. ``score.options``.
            named_at: Path of the setting that gives the names, e.g. ``score.scorers``.

        Raises:
            UnknownNameError: no member has such a name.
            ConfigurationError: wrong options, or options of a member that is not among the names.
        """
        for name in names:
            self.find(name, named_at)
        for other in options:
            if other not in names:
                # A misspelt name, or a member forgotten.
                raise ConfigurationError(
                    f"{where}.{other}: options of a {self.kind} that is not used{suggestion(other, names)}; "
                    f"used: {', '.join(names) or 'none'}"
                )
        return [self.make(name, options.get(name), f"{where}.{name}") for name in names]


@cache
def _classes(family: Family[Any]) -> dict[str, type[Any]]:
    # Asking for entry points reads the metadata of every installed package: once a process.
    found: dict[str, type[Any]] = {}
    for module in iter_modules(import_module(family.package).__path__):
        member = getattr(import_module(f"{family.package}.{module.name}"), family.attribute, None)
        if member is not None:
            _add(found, family, member, module.name)
    for point in entry_points(group=family.package):
        _add(found, family, _loaded(point), point.name)
    return found


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # whatever another package's code raises
        package = point.dist.name if point.dist is not None else "?"
        raise ConfigurationError(
            f"entry point '{point.name} = {point.value}' of package {package} cannot be loaded "
            f"({type(error).__name__}: {error}); repair that package, or uninstall it"
        ) from error


def _add(found: dict[str, type[Any]], family: Family[Any], member: Any, origin: str) -> None:
    base: Any = resolve_name(family.base)
    if not (isinstance(member, type) and issubclass(member, base)):
        raise ConfigurationError(
            f"{family.kind} file or entry point {origin!r} gives no {base.__name__} class, but {member!r}"
        )
    name, config = getattr(member, "name", None), getattr(member, "Config", None)
    if not isinstance(name, str):
        raise ConfigurationError(f"{family.kind} {origin!r} has no `name`, a text that users give")
    if not (isinstance(config, type) and issubclass(config, Settings)):
        raise ConfigurationError(f"{family.kind} {origin!r} has no `Config`, a class of {Settings.__name__}")
    if name in found:
        raise ConfigurationError(f"two of kind {family.kind} are called {name!r}; rename that of {origin!r}")
    found[name] = member


def with_members(model: type[Config], values: Mapping[str, Any], where: str = "") -> type[Config]:
    """The class of some settings with those of the members that they name beside them.

    Args:
        model: The class of the settings; what it was joined with before is left behind.
        values: The settings by field; a name that is missing is the field's default.
        where: Path of the settings in what the user wrote.

    Raises:
        UnknownNameError: no member has such a name.
        ConfigurationError: a member's setting has the name of one of the others.
    """
    plain: Any = model.without_members or model
    return _joined(plain, tuple(_named_by(plain, values, where)))  # type: ignore[return-value]


def readers(model: type[Settings], field: str) -> list[str]:
    """The members that could be named and that read a setting, e.g. ``policy policy_gradient``."""
    found = []
    for named, family in model.members.items():
        for name, config in family.configs().items():
            if field in config.model_fields:
                found.append(f"{named} {name}")
            found += readers(config, field)
    return found


def _named_by(model: type[Settings], values: Mapping[str, Any], where: str) -> Iterator[type[Settings]]:
    for field, family in model.members.items():
        name = values.get(field, model.model_fields[field].default)
        if isinstance(name, str):  # else the field's own type refuses it
            config: type[Settings] = family.find(name, f"{where}.{field}" if where else field).Config
            yield config
            yield from _named_by(config, values, where)


@cache
def _joined(model: type[Settings], parts: tuple[type[Settings], ...]) -> type[Settings]:
    parts = tuple(part for part in dict.fromkeys(parts) if part.model_fields)
    seen = dict.fromkeys(model.model_fields, model.__name__)
    for part in parts:
        for field in part.model_fields:
            if field in seen:
                raise ConfigurationError(
                    f"setting {field!r} of {part.__name__} is one of {seen[field]} already; rename it"
                )
            seen[field] = part.__name__
    if not parts:
        return model
    body = {"__module__": model.__module__, "without_members": model}
    return types.new_class(model.__name__, (model, *parts), exec_body=lambda space: space.update(body))


SOURCES: Family[Source] = Family(
    package="datamask_pipeline.sources",
    attribute="SOURCE",
    base="datamask_pipeline.sources.base:Source",
    kind="document source",
)
FORMATS: Family[FileFormat] = Family(
    package="datamask_pipeline.sources.formats",
    attribute="FORMAT",
    base="datamask_pipeline.sources.formats.base:FileFormat",
    kind="file format",
)
SCORERS: Family[Scorer] = Family(
    package="datamask_pipeline.quality",
    attribute="SCORER",
    base="datamask_pipeline.quality.base:Scorer",
    kind="quality scorer",
    labelled=True,
)
METRICS: Family[DiversityMetric] = Family(
    package="datamask_pipeline.diversity",
    attribute="METRIC",
    base="datamask_pipeline.diversity.base:DiversityMetric",
    kind="diversity metric",
)
POLICIES: Family[SelectionPolicy] = Family(
    package="datamask_pipeline.selection.policies",
    attribute="POLICY",
    base="datamask_pipeline.selection.policies.base:SelectionPolicy",
    kind="selection policy",
)
ESTIMATORS: Family[GradientEstimator] = Family(
    package="datamask_pipeline.selection.policy_gradient.estimators",
    attribute="ESTIMATOR",
    base="datamask_pipeline.selection.policy_gradient.estimators.base:GradientEstimator",
    kind="gradient estimator",
)
LAYOUTS: Family[Layout] = Family(
    package="datamask_pipeline.evaluation.layouts",
    attribute="LAYOUT",
    base="datamask_pipeline.evaluation.layouts.base:Layout",
    kind="question layout",
)
