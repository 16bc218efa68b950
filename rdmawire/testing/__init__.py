"""Help for tests of code that uses rdmawire; needs the extra ``rdmawire[hypothesis]``.

:mod:`rdmawire.testing.strategies` has Hypothesis strategies for headers, packets, frames and
streams. Importing this package does not need Hypothesis. :mod:`rdmawire.testing.pytest_plugin`
adds the option ``--rdmawire-devices`` to pytest.
"""
