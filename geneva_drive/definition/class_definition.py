"""What is known of a workflow class once it is made."""

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
from geneva_drive.definition.policies import DeclaredHandler, DeclaredPolicies, Policy
from geneva_drive.definition.policy_checks import checked_class_policies, checked_handler
from geneva_drive.definition.steps import DeclaredStep
from geneva_drive.definition.validation import MISSING, Blueprint, Declared, Place, problem_with_function
from geneva_drive.exceptions import StepConfigurationError

HOOKS = ("before_step", "after_step", "around_step")


@dataclass(frozen=True, slots=True)
class ClassDefinition:
    """What the author of a workflow class wrote, checked.

    Attributes
    ----------
    label
        ``app_label.ClassName``, as rows hold it in their type.
    hero_model
        ``app_label.ModelName`` or the model; None for any. Resolved when it is needed, for models may be
        loaded later.
    job_options
        The class's own, for `options.merge`.
    former_types
        Labels that the class had before. Not inherited.
    is_abstract
        The class shares steps and can be neither started nor stored.
    is_base
        The class is ``Workflow`` itself.
    hooks
        Those of `HOOKS` that the class or one of its bases overrides.
    policies
        What holds for exceptions in any step, in the order of declaration, that of base classes first.
    own_job_options
        Those of this class and its mixins, before anything is inherited by default; None if it gives none.
    declared
        What this class body alone declares, from which the steps of subclasses are made.
    """

    label: str
    steps: StepCollection = field(default_factory=StepCollection)
    cancel_conditions: tuple[Condition, ...] = ()
    hero_model: Any = None
    job_options: Mapping[str, Any] = field(default_factory=dict)
    former_types: tuple[str, ...] = ()
    may_proceed_without_hero: bool = False
    is_abstract: bool = False
    is_base: bool = False
    hooks: frozenset[str] = frozenset()
    policies: tuple[Policy, ...] = ()
    own_job_options: Mapping[str, Any] | None = None
    declared: tuple[Declaration, ...] = ()

    @property
    def is_startable(self) -> bool:
        return not (self.is_abstract or self.is_base)

    @property
    def has_before_step(self) -> bool:
        return "before_step" in self.hooks

    @property
    def has_after_step(self) -> bool:
        return "after_step" in self.hooks

    @property
    def has_around_step(self) -> bool:
        return "around_step" in self.hooks

    def resolve_hero_model(self) -> type[Any] | None:
        """Return the model that `hero_model` stands for, or None when any will do.

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
                f"{self.label}: hero_model={self.hero_model!r} names no installed model. Give "
                f"'app_label.ModelName', and see that the app is in INSTALLED_APPS. ({error})"
            ) from error


LONGEST_STEP_NAME: Final = 150
"""Characters. What the column holds."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a class declares and inherits.

    Attributes
    ----------
    body
        The class body with plain functions where declarations were.
    own
        The declarations of this body alone, from which subclasses are made.
    policies
        What the class says about exceptions, in the order of declaration, that of base classes first.
    """

    steps: StepCollection
    cancel_conditions: tuple[Condition, ...]
    body: dict[str, Any]
    own: tuple[Declaration, ...]
    policies: tuple[Policy, ...] = ()


def collect(
    blueprint: Blueprint, reserved: Collection[str], known: Mapping[type, Sequence[Declaration]]
) -> Collected:
    """Return what a class that is about to be made declares and inherits.

    Everything is placed anew, from the farthest ancestor to the class itself, so that one rule of order
    holds for a single class, a line of subclasses and mixins alike.

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
        Something in it is wrong.
    """
    own = tuple(declarations_in(blueprint.path, blueprint.body))
    inherited: list[Declaration] = []
    for ancestor in reversed(blueprint.ancestors):
        inherited += known.get(ancestor) or declarations_in(blueprint.path, vars(ancestor))
    finished = replace(blueprint, body=without_declarations(blueprint, own, inherited))

    order: list[str] = []
    effective: dict[str, Declaration] = {}
    for declaration in (*inherited, *own):
        if isinstance(declaration.declared, DeclaredPolicies):
            continue  # Every class of the line may have its own, and they add up.
        place = declaration.place(blueprint.path)
        _check_name(declaration, effective.get(declaration.name), reserved, place)
        effective[declaration.name] = declaration
        if isinstance(declaration.declared, DeclaredStep):
            put_in_order(order, declaration, place)
    # Only what holds in the end is defined: what a subclass replaces may not fit the subclass any more.
    steps = [define_step(effective[name], finished) for name in order]
    conditions = [
        define_condition(each, finished)
        for each in effective.values()
        if isinstance(each.declared, DeclaredCondition)
    ]
    policies = _policies((*inherited, *own), effective, finished)

    _check_shortened_series(blueprint, own, inherited, steps)
    _check_gravestones(blueprint, own, steps)
    _check_former_names(blueprint, steps)
    asked = [(each.name, each.skip_if) for each in steps if each.skip_if is not None]
    asked += [(name, each) for name, each in conditions]
    for name, condition in asked:
        if isinstance(condition.test, str) and condition.test in order:
            # Looking would do the step's work, and that under the lock.
            raise (
                effective[name]
                .place(blueprint.path)
                .error(f"its condition {condition.test!r} is a step. Name a method that only looks.")
            )
    return Collected(
        StepCollection(steps), tuple(each for _, each in conditions), finished.body, own, policies
    )


def _policies(
    declarations: Sequence[Declaration], effective: Mapping[str, Declaration], blueprint: Blueprint
) -> tuple[Policy, ...]:
    policies: list[Policy] = []
    for declaration in declarations:
        declared = declaration.declared
        if isinstance(declared, DeclaredPolicies):
            policies += checked_class_policies(declared, blueprint, blueprint.path)
        elif isinstance(declared, DeclaredHandler) and effective[declaration.name] is declaration:
            policies.append(
                checked_handler(declaration.name, declared, blueprint, declaration.place(blueprint.path))
            )
    return tuple(policies)


def _check_name(
    declaration: Declaration, inherited: Declaration | None, reserved: Collection[str], place: Place
) -> None:
    name = declaration.name
    if name in reserved or (name.startswith("__") and name.endswith("__")):
        raise place.error(f"the name would hide Workflow.{name}. Choose another name.")
    if len(name) > LONGEST_STEP_NAME:
        raise place.error(f"the name is longer than {LONGEST_STEP_NAME} characters. Shorten it.")
    if inherited is not None and type(inherited.declared) is not type(declaration.declared):
        raise place.error(f"the name is that of an inherited {inherited.kind_written}. Choose another name.")


def _check_shortened_series(
    blueprint: Blueprint,
    own: Sequence[Declaration],
    inherited: Sequence[Declaration],
    steps: Sequence[StepDefinition],
) -> None:
    """Refuse to leave the tail of an inherited series behind, where rows may wait for either code."""
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
    """Refuse a plain method that stands where an inherited gravestone is: nothing would call it."""
    declared = {each.name for each in own}
    for definition in steps:
        if definition.is_removed and definition.name in blueprint.body.keys() - declared:
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
                    f"formerly={old!r} is said by step {taken[old]!r} too. Take one of them out."
                )
            taken[old] = definition.name


def define_step(declaration: Declaration, blueprint: Blueprint) -> StepDefinition:
    """Return the step or gravestone that was declared, as it is in the class.

    Raises
    ------
    StepConfigurationError
        It was declared in a way that cannot work.
    """
    declared, place = declaration.declared, declaration.place(blueprint.path)
    assert isinstance(declared, DeclaredStep)
    if declared.removed:
        _check_gravestone(declared, place)
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
    is_async = iscoroutinefunction(_real_function(declaration.name, blueprint, place, taken))
    if is_async and declared.resumable:
        raise place.error(
            "it is async, and the checkpoints of a resumable step are calls of the database. Make it a plain "
            "method, and call what is async by asgiref's async_to_sync()."
        )
    return StepDefinition(
        declaration.name,
        function=declaration.name,
        is_async=is_async,
        resumable=declared.resumable,
        location=declared.location,
        **fields,
    )


def _check_gravestone(declared: DeclaredStep, place: Place) -> None:
    given = [repr(argument) for argument in declared.arguments]
    given += [f"{option}={value!r}" for option, value in declared.options.items()]
    if given:
        raise place.error(
            f"removed_step({', '.join(given)}): a gravestone takes its name from the attribute, and nothing "
            "else. Leave the parentheses empty."
        )


def _real_function(name: str, blueprint: Blueprint, place: Place, taken: tuple[str, ...]) -> Any:
    """Return what will be called, for the class or a mixin may have redefined the plain method."""
    function = blueprint.find(name)
    if isinstance(function, DeclaredStep):
        function = function.function
    if problem := problem_with_function(function, *taken):
        raise place.error(f"{problem} To take the step out, write {name} = removed_step().")
    return function


def define_condition(declaration: Declaration, blueprint: Blueprint) -> tuple[str, Condition]:
    """Return the name and the condition that was declared with ``cancel_if``.

    A method is kept by its name, so that a subclass may redefine it.
    """
    declared, place = declaration.declared, declaration.place(blueprint.path)
    assert isinstance(declared, DeclaredCondition)
    test = declared.function
    if declared.options or test is MISSING or isinstance(test, bool):
        raise place.error("cancel_if takes one callable of the workflow or method's name. Give that alone.")
    if callable(test):
        test = declaration.name
    return declaration.name, checked_condition(test, "cancel_if", blueprint, place)


def put_in_order(order: list[str], declaration: Declaration, place: Place) -> None:
    """Put a step's name where it belongs.

    That is next to the neighbour that it names, else where the name is already, else after the member of
    its series before it, else at the end.

    Raises
    ------
    StepConfigurationError
        It names two neighbours, itself, or a step that is not in `order` yet.
    """
    name = declaration.name
    assert isinstance(declaration.declared, DeclaredStep)
    neighbour = _neighbour(declaration.declared.options, place)
    if neighbour is not None:
        option, other = neighbour
        if other not in order:
            declared = ", ".join(order) or "none"
            raise place.error(
                f"{option}={other!r} names no step that stands further up in the class, or in a base class. There "
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
