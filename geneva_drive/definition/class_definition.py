"""The definition of a workflow class: `collect` makes it from what the class declares and inherits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from asgiref.sync import iscoroutinefunction
from django.apps import apps

from geneva_drive.definition.class_body import Declaration, declarations_in, without_declarations
from geneva_drive.definition.collection import StepCollection, StepDefinition
from geneva_drive.definition.conditions import Condition, DeclaredCondition, checked_condition
from geneva_drive.definition.options import checked_step_options
from geneva_drive.definition.policies import DeclaredHandler, Policy
from geneva_drive.definition.policy_checks import checked_class_policies, checked_handler
from geneva_drive.definition.steps import DeclaredStep
from geneva_drive.definition.validation import MISSING, Blueprint, Declared, Place, problem_with_function
from geneva_drive.exceptions import StepConfigurationError

LONGEST_STEP_NAME: Final = 150
"""Characters. What the column holds."""


@dataclass(frozen=True, slots=True)
class ClassDefinition:
    """What the author of a workflow class wrote, checked."""

    label: str  # ``app_label.ClassName``, which rows store as their type
    steps: StepCollection = field(default_factory=StepCollection)
    cancel_conditions: tuple[Condition, ...] = ()
    hero_model: Any = None  # ``app_label.ModelName`` or the model; None for any
    # Labels that the class had before. Not inherited.
    former_types: tuple[str, ...] = ()
    may_proceed_without_hero: bool = False
    is_abstract: bool = False  # the class only shares steps and cannot be started
    is_base: bool = False  # the class is ``Workflow`` itself
    # The names of the overridden hooks: ``before_step``, ``after_step``, ``around_step``.
    hooks: frozenset[str] = frozenset()
    # The policies for exceptions in any step, in the order of declaration, those of base classes first.
    policies: tuple[Policy, ...] = ()
    # The job options of the class and its mixins, or None if they give none.
    own_job_options: Mapping[str, Any] | None = None
    # The declarations of this class body alone, from which the steps of subclasses are made.
    declared: tuple[Declaration, ...] = ()

    @property
    def job_options(self) -> Mapping[str, Any]:
        return self.own_job_options or {}

    @property
    def is_startable(self) -> bool:
        return not (self.is_abstract or self.is_base)

    def resolve_hero_model(self) -> type[Any] | None:
        """Return the model that `hero_model` names, or None for any model.

        Raises
        ------
        StepConfigurationError
            No such model is installed.
        """
        if not isinstance(self.hero_model, str):
            model: type[Any] | None = self.hero_model
            return model
        try:
            return apps.get_model(self.hero_model)
        except LookupError as error:
            raise StepConfigurationError(
                f"{self.label}: hero_model={self.hero_model!r} is not an installed model. Give "
                f"'app_label.ModelName', and check that the app is in INSTALLED_APPS. ({error})"
            ) from error


def collect(
    blueprint: Blueprint, label: str, reserved: Collection[str], known: Mapping[type, Sequence[Declaration]]
) -> tuple[ClassDefinition, dict[str, Any]]:
    """Return the definition of a class with all that it declares and inherits, and its body without declarations.

    Everything is put in order again, from the farthest ancestor to the class itself, so that one rule covers
    single classes, lines of subclasses and mixins.

    Parameters
    ----------
    reserved
        Names that no step may have: the attributes of the base class.
    known
        The ancestors that are workflow classes, with the declarations of their bodies. The other ancestors
        are plain mixins, whose bodies are read here.

    Raises
    ------
    StepConfigurationError
        A declaration is wrong.
    """
    own = tuple(declarations_in(blueprint.path, blueprint.body))
    inherited: list[Declaration] = []
    for ancestor in reversed(blueprint.ancestors):
        inherited += known.get(ancestor) or declarations_in(blueprint.path, vars(ancestor))
    finished = replace(blueprint, body=without_declarations(blueprint, own, inherited))

    order: list[str] = []
    effective: dict[str, Declaration] = {}
    for declaration in (*inherited, *own):
        if declaration.is_policies:
            continue  # Each class may have its own, and they add up.
        place = declaration.place(blueprint.path)
        _check_name(declaration, effective.get(declaration.name), reserved, place)
        effective[declaration.name] = declaration
        if isinstance(declaration.declared, DeclaredStep):
            put_in_order(order, declaration, place)
    # What a subclass replaces is not checked: it may not fit the subclass any more.
    steps = [define_step(effective[name], finished) for name in order]
    conditions = {
        name: define_condition(each, finished)
        for name, each in effective.items()
        if isinstance(each.declared, DeclaredCondition)
    }
    policies: list[Policy] = []
    for declaration in (*inherited, *own):
        if declaration.is_policies:
            policies += checked_class_policies(declaration.declared, finished)
        elif isinstance(declaration.declared, DeclaredHandler) and effective[declaration.name] is declaration:
            place = declaration.place(blueprint.path)
            policies.append(checked_handler(declaration.name, declaration.declared, finished, place))

    _check_shortened_series(blueprint, own, inherited, steps)
    _check_gravestones(blueprint, own, steps)
    _check_former_names(blueprint, steps)
    for name, condition in {**{each.name: each.skip_if for each in steps}, **conditions}.items():
        if condition is not None and isinstance(condition.test, str) and condition.test in order:
            # Evaluating it would do the step's work, under the lock.
            raise (
                effective[name]
                .place(blueprint.path)
                .error(f"its condition {condition.test!r} is a step. Name a method that only looks.")
            )
    definition = ClassDefinition(
        label, StepCollection(steps), tuple(conditions.values()), policies=tuple(policies), declared=own
    )
    return definition, finished.body


def _check_name(
    declaration: Declaration, inherited: Declaration | None, reserved: Collection[str], place: Place
) -> None:
    name = declaration.name
    if name in reserved or (name.startswith("__") and name.endswith("__")):
        raise place.error(f"the name would hide Workflow.{name}. Choose another name.")
    if len(name) > LONGEST_STEP_NAME:
        raise place.error(f"the name is longer than {LONGEST_STEP_NAME} characters. Shorten it.")
    if inherited is not None and type(inherited.declared) is not type(declaration.declared):
        kind = inherited.declared.kind
        written = kind if kind == "step" else f"@{kind}"
        raise place.error(f"the name is that of an inherited {written}. Choose another name.")


def _check_shortened_series(
    blueprint: Blueprint,
    own: Sequence[Declaration],
    inherited: Sequence[Declaration],
    steps: Sequence[StepDefinition],
) -> None:
    """Refuse a series that is declared again with fewer steps: rows may still name the inherited rest."""
    series = {each.series for each in own if each.series is not None}
    members = {each.name for each in own}
    runnable = {definition.name for definition in steps if definition.is_runnable}
    for declaration in inherited:
        if declaration.series in series and declaration.name in runnable - members:
            raise declaration.place(blueprint.path).error(
                f"series {declaration.series!r} is declared again with fewer waits, which leaves this step "
                f"behind. Take it out: {declaration.name} = removed_step()."
            )


def _check_gravestones(
    blueprint: Blueprint, own: Sequence[Declaration], steps: Sequence[StepDefinition]
) -> None:
    """Refuse a plain method with the name of an inherited gravestone: nothing would call it."""
    declared = {each.name for each in own}
    for definition in steps:
        if definition.removed and definition.name in blueprint.body.keys() - declared:
            raise Place(blueprint.path, definition.name, definition.location).error(
                "it is a removed step, and this class defines a plain method of that name, which would never "
                "run. Put @step above it to bring the step back, or choose another name."
            )


def _check_former_names(blueprint: Blueprint, steps: Sequence[StepDefinition]) -> None:
    names = {definition.name for definition in steps}
    taken: dict[str, str] = {}
    for definition in steps:
        place = Place(blueprint.path, definition.name, definition.location)
        for old in definition.formerly:
            if old in names:
                raise place.error(f"formerly={old!r} is the name of a declared step. Take one of them out.")
            if old in taken:
                raise place.error(
                    f"formerly={old!r} is a former name of step {taken[old]!r} too. Take one of them out."
                )
            taken[old] = definition.name


def define_step(declaration: Declaration, blueprint: Blueprint) -> StepDefinition:
    """Return the definition of a declared step or gravestone. Raises StepConfigurationError."""
    declared: DeclaredStep = declaration.declared
    place = declaration.place(blueprint.path)
    if declared.removed:
        given = [repr(argument) for argument in declared.arguments]
        given += [f"{option}={value!r}" for option, value in declared.options.items()]
        if given:
            raise place.error(
                f"removed_step({', '.join(given)}): a gravestone takes its name from the attribute, and nothing "
                "else. Leave the parentheses empty."
            )
        return StepDefinition(declaration.name, removed=True, location=declared.location)
    if declared.arguments:
        surplus = declared.arguments[0]
        raise place.error(f"step({surplus!r}): a step takes its name from the method. Give keywords only.")
    if declared.function is MISSING:
        raise place.error("step(…) decorates nothing. Put it above a method, as @step(…).")
    if isinstance(declared.function, Declared):
        raise place.error("its function is declared as a step or a condition already. Give a plain function.")
    taken = ("self", "iteration") if declared.resumable else ("self",)
    if problem := problem_with_function(declared.function, *taken):
        raise place.error(problem)
    fields = checked_step_options(declared.options, blueprint, place, resumable=declared.resumable)
    if declaration.wait is not None:
        fields["wait"] = fields["options"]["wait"] = declaration.wait
    # What will be called: the class or a mixin may have redefined the plain method.
    function = blueprint.find(declaration.name)
    if isinstance(function, DeclaredStep):
        function = function.function
    if problem := problem_with_function(function, *taken):
        raise place.error(f"{problem} To take the step out, write {declaration.name} = removed_step().")
    is_async = iscoroutinefunction(function)
    if is_async and declared.resumable:
        raise place.error(
            "it is async, and the checkpoints of a resumable step use the database. Make it a plain method, "
            "and call async functions with asgiref's async_to_sync()."
        )
    return StepDefinition(
        declaration.name,
        function=declaration.name,
        is_async=is_async,
        resumable=declared.resumable,
        location=declared.location,
        **fields,
    )


def define_condition(declaration: Declaration, blueprint: Blueprint) -> Condition:
    """Return the condition that was declared with ``cancel_if``. Raises StepConfigurationError."""
    declared: DeclaredCondition = declaration.declared
    place = declaration.place(blueprint.path)
    test = declared.function
    if declared.options or test is MISSING or isinstance(test, bool):
        raise place.error("cancel_if takes one callable of the workflow or method's name. Give that alone.")
    if callable(test):
        test = declaration.name  # by its name, so that a subclass may redefine the method
    return checked_condition(test, "cancel_if", blueprint, place)


def put_in_order(order: list[str], declaration: Declaration, place: Place) -> None:
    """Insert a step's name into `order`.

    It goes next to the neighbour of its ``before`` or ``after``; else it keeps its place; else it goes after
    the previous member of its series; else at the end.

    Raises
    ------
    StepConfigurationError
        It names two neighbours, itself, or a step that is not in `order` yet.
    """
    name = declaration.name
    neighbour = _neighbour(declaration.declared.options, place)
    if neighbour is not None:
        option, other = neighbour
        if other not in order:
            declared = ", ".join(order) or "none"
            raise place.error(
                f"{option}={other!r} is not the name of an earlier step of the class or a base class. There "
                f"are: {declared}. Declare {other!r} first, or correct the name."
            )
        if other == name:
            raise place.error(f"{option}={other!r} names the step itself. Name another one.")
    elif name in order:
        return
    if declaration.follows is not None:
        neighbour = "after", declaration.follows
    if name in order:
        order.remove(name)
    if neighbour is None:
        order.append(name)
    else:
        option, other = neighbour
        order.insert(order.index(other) + (option == "after"), name)


def _neighbour(options: Mapping[str, Any], place: Place) -> tuple[str, str] | None:
    given = [(option, options[option]) for option in ("before", "after") if options.get(option) is not None]
    if len(given) == 2:
        raise place.error(
            f"before={options['before']!r} and after={options['after']!r} exclude each other. Keep one."
        )
    for option, other in given:
        if not isinstance(other, str):
            raise place.error(f"{option}={other!r} is not a step's name. Give the name as a text.")
    return given[0] if given else None
