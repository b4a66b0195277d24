# SPDX-License-Identifier: Apache-2.0
"""Makes stages of functions of the running program, or undoes it.

stageprof has the interpreter execute this, between two instructions of the main
thread, with a last line added: a call of main(). No module of the program is
imported, no exception leaves, and the only traces are those that are asked for:
the functions' wrappers, and the list of them in the marker package.
"""

import json
import os
import sys
import types

# Attribute of the package: {"module:qualname": [(owner, name, old, new)]}, where owner is a class or a
# module's namespace. It holds no code of this script, which the next one does not share.
REGISTRY = "_marked_from_outside"


class Refused(Exception):
    """Says to a person why a function is not marked."""


def namespace(module):
    # Not vars(): a module that is to be loaded on first use must not be loaded by this.
    return object.__getattribute__(module, "__dict__")


def names_in(owner):
    return type.__getattribute__(owner, "__dict__") if isinstance(owner, type) else owner


def put(owner, name, value):
    if isinstance(owner, type):
        type.__setattr__(owner, name, value)
    else:
        owner[name] = value


def find(target):
    """Returns the owner and the name of what "module:qualname" names."""
    module_name, _, qualname = target.partition(":")
    module = sys.modules.get(module_name)
    if not issubclass(type(module), types.ModuleType):
        raise Refused("the program has not imported a module %r" % module_name)
    *classes, name = qualname.split(".")
    owner = namespace(module)
    for part in classes:
        owner = names_in(owner).get(part)
        if not issubclass(type(owner), type):
            raise Refused("there is no class %r in it" % part)
    if name not in names_in(owner):
        for base in owner.__mro__[1:] if classes else ():
            if name in names_in(base):
                inherited = (base.__module__, base.__qualname__, name)
                raise Refused("it is inherited; name %s:%s.%s" % inherited)
        raise Refused("there is no %r in it" % name)
    return owner, name


def check(value):
    """Only functions of Python take a wrapper that behaves as they do."""
    function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    if not isinstance(function, types.FunctionType):
        raise Refused("it is no Python function but a %s" % type(function).__name__)


def other_names(function):
    """Finds the names in modules that stand for the very same function."""
    for module in list(sys.modules.values()):
        if issubclass(type(module), types.ModuleType):
            names = namespace(module)
            for name, value in list(names.items()):
                if value is function:
                    yield names, name


def is_ours(place):
    owner, name, _, new = place
    return names_in(owner).get(name) is new


def mark(package, target, stage):
    marked = package.__dict__.setdefault(REGISTRY, {})
    owner, name = find(target)
    old = names_in(owner)[name]
    check(old)
    if any(old is place[3] for places in marked.values() for place in places):
        return {"status": "already"}
    new = package.stage(stage)(old)
    # An older entry is of a name that got another meaning since, which is left to who gave it.
    places = marked[target] = [(owner, name, old, new)]
    put(owner, name, new)
    for other in other_names(old):
        places.append((*other, old, new))
        put(*other, new)
    return {"status": "marked", "references": len(places) - 1}


def unmark(package, target):
    places = getattr(package, REGISTRY, {}).pop(target, None)
    if places is None:
        return {"status": "not marked"}
    ours = [place for place in places if is_ours(place)]
    for owner, name, old, _ in ours:
        put(owner, name, old)
    return {"status": "undone", "references": len(places) - 1, "kept": len(places) - len(ours)}


def import_package():
    import stageprof

    if not hasattr(stageprof, "stage") or not hasattr(stageprof, "implementation"):
        raise Refused("the module 'stageprof' there (%s) is another one" % getattr(stageprof, "__file__", None))
    if stageprof.implementation == "statistics":
        raise Refused("the marker package there has no library, so its stages can't be seen")
    return stageprof


def handle(request):
    package = sys.modules.get("stageprof") if request["undo"] else import_package()
    functions = request["functions"]
    if request["undo"] and not functions:
        functions = [{"function": target} for target in list(getattr(package, REGISTRY, {}))]
    results = []
    for function in functions:
        target = function["function"]
        try:
            if request["undo"]:
                result = unmark(package, target)
            else:
                result = mark(package, target, function["stage"])
        except Refused as error:
            result = {"status": "refused", "reason": str(error)}
        except Exception as error:
            result = {"status": "refused", "reason": "%s: %s" % (type(error).__name__, error)}
        result["function"] = target
        results.append(result)
    return results


def answer(request):
    try:
        return {"functions": handle(request)}
    except ImportError as error:
        return {"error": "the marker package is not importable there: %s" % error}
    except Refused as error:
        return {"error": str(error)}
    except BaseException as error:  # an exception of a signal handler that ran meanwhile, too
        return {"error": "%s: %s" % (type(error).__name__, error)}


def claim(folder):
    """Takes the request, unless it was withdrawn or a parent process has taken it."""
    try:
        os.close(os.open(folder + "/taken", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return False
    return True


def main(folder, request):
    if not claim(folder):
        return
    text = json.dumps(answer(json.loads(request)))
    try:
        with open(folder + "/answer.new", "x", encoding="utf-8") as file:
            file.write(text)
        os.rename(folder + "/answer.new", folder + "/answer")
    except OSError:
        pass  # nobody to tell
