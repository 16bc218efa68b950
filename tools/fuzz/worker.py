"""One target under atheris: ``python -m tools.fuzz.worker TARGET CORPUS [libFuzzer options]``."""

import sys


def main() -> None:
    """Instrument rdmawire as it is imported, then hand over to libFuzzer."""
    try:
        import atheris
    except ImportError:
        sys.exit("fuzzing needs atheris: pip install 'rdmawire[fuzz]'")
    with atheris.instrument_imports(include=["rdmawire"]):
        from tools.fuzz.targets import TARGETS
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
