"""rdmawire: a packet-level RDMA toolkit: wire formats, captures, dissection.

Importing this package is cheap on purpose: nothing heavy is loaded until it is used.
"""

import os

__version__ = "0.1.0"

_here = os.path.dirname(__file__)
if os.path.isfile(os.path.join(_here, "layers")):
    # A checkout without symbolic links (git's core.symlinks=false, as on Windows): `layers` is a
    # text file that holds the link's target, ../layers. The folder is found beside this package.
    __path__.append(os.path.dirname(_here))
del _here
