"""The python functions that the operator lets bundles name."""

import importlib
import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Function = Callable[[dict[str, Any], Any], Any]


class Functions:
    """Functions of the modules on the operator's list, which are imported at once.

    Only functions that a listed module itself defines count: whatever it imported for its own use (``os.system``) was
    not listed. Names with a leading underscore stay private.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules: dict[str, ModuleType | str] = {name: _load(name) for name in modules}
        self._found: dict[str, Function | str] = {}

    def find(self, reference: str) -> Function | str:
        """The function that ``module:function`` names, or the sentence that says why there is none."""
        if reference not in self._found:
            self._found[reference] = self._look_up(reference)
        return self._found[reference]

    def _look_up(self, reference: str) -> Function | str:
        module_name, _, name = reference.partition(":")
        module = self._modules.get(module_name)
        if module is None:
            return f"the operator does not list the module {module_name}"
        if isinstance(module, str):
            return module
        function = None if name.startswith("_") else vars(module).get(name)
        if not inspect.isfunction(function) or function.__module__ != module_name:
            return f"the module {module_name} defines no public function {name}"
        return function if _takes_args_and_call(function) else f"{reference} must be a function (args, call), plain or async"


def _load(name: str) -> ModuleType | str:
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 (a module may raise anything while it is imported)
        return f"the module {name} cannot be imported ({type(error).__name__})"


def _takes_args_and_call(function: Callable[..., Any]) -> bool:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return False
    try:
        inspect.signature(function).bind({}, object())
    except TypeError:
        return False
    return True
