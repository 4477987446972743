# SPDX-License-Identifier: Apache-2.0
"""help() has something to say about everything that a program may use."""
import inspect
import re

import public


def is_silent(thing):
    """Whether it has no docstring of its own, nor the method that it overrides."""
    if inspect.isclass(thing):
        return not thing.__doc__ or bool(public.is_record(thing) and re.match(r"\w+\(", thing.__doc__))  # Python's own line
    return (inspect.isroutine(thing) or isinstance(thing, property)) and not inspect.getdoc(thing)


def test_everything_has_a_docstring():
    silent = [module.__name__ for module in public.modules() if not module.__doc__]
    silent += ["%s.%s" % (where, name) for where, name, thing in public.things() if is_silent(thing)]
    assert "\n".join(silent) == ""


def test_a_record_explains_its_fields():
    """help() says of a field only which number it has, so the class says what it means."""
    unexplained = []
    for where, name, thing in public.things():
        if inspect.isclass(thing) and public.is_record(thing):
            words = re.findall(r"\w+", thing.__doc__)
            unexplained += ["%s.%s.%s" % (where, name, field) for field in thing._fields if field not in words]
    assert "\n".join(unexplained) == ""
