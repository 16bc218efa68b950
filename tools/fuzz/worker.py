"""One target under atheris: ``python -m tools.fuzz.worker TARGET CORPUS [libFuzzer options]``."""

import sys


def main() -> None:
    """Instrument rdmawire as it is imported, then hand over to libFuzzer."""
    try:
        import atheris
    except ImportError:
        sys.exit("fuzzing needs atheris: pip install 'rdmawire[fuzz]'")
    with atheris.instrument_imports(include=["rdmawire"]):
        from tools.fuzz.mutators import mutate
        from tools.fuzz.targets import TARGETS
    name = sys.argv.pop(1)

    def mutator(data: bytes, max_size: int, seed: int) -> bytes:
        changed = mutate(name, data, max_size, seed)
        plain: bytes = atheris.Mutate(data, max_size) if changed is None else changed
        return plain

    atheris.Setup(sys.argv, TARGETS[name], custom_mutator=mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
