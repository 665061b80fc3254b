"""Parameter servers in which something is wrong, for the laws to catch."""

from tests.bugs.mutant import mutant

PACKAGE = "backends.data_parallel.parameter_server"


def broken(name, *changes):
    """The strategy's module, with what it takes from module ``name`` changed."""
    result = mutant("backends.data_parallel.flat" if name == "flat" else f"{PACKAGE}.{name}", *changes)
    if name == "parameter_server":
        return result
    module = mutant(f"{PACKAGE}.parameter_server")
    taken = [n for n in vars(module) if n in vars(result) and not n.startswith("__")]
    module.__dict__.update({n: vars(result)[n] for n in taken})
    return module
