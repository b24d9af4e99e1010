"""`python -m npuforge.hw_kernels.hls_lint`."""

import sys

from .program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
