"""Typed, one-line errors of the whole kit.

Every error a user can cause is an `NpuforgeError`. The command line prints `error: <message>` and exits with `exit_code`;
a message names the node, section or file, what was expected, what was found and what to do.
"""


class NpuforgeError(Exception):
    """Base of all typed errors. `exit_code`: 1 error, 2 usage, 3 precision gate (docs/exit-codes.md)."""

    exit_code = 1

    def __str__(self) -> str:
        """The message on one line: control characters and ends of lines, which names from a file may have, as Python writes them in a string."""
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in super().__str__())


class UsageError(NpuforgeError):
    """The command line (or a call) is wrong as it was typed: an unknown option, an illegal value, an option that does not apply."""

    exit_code = 2


class HeadError(UsageError):
    """The outputs that a head was given are not those it decodes. In a build it is the record's fault, not the command line's: exit code 1."""

    exit_code = 1


class InputError(NpuforgeError):
    """A file that the user wrote (preprocessing record, truth) is missing, wrong, or does not fit the network."""


class WriteError(NpuforgeError):
    """A file or folder that cannot be written. Names the option that chooses another place."""


class ModelError(NpuforgeError):
    """The ONNX file cannot be read or is not valid."""


class UnsupportedError(NpuforgeError):
    """A node that neither the NPU nor the CPU partition can take. Names node, reason and remedy."""


class CalibrationError(NpuforgeError):
    """Calibration images are missing, unreadable, of the wrong size, or give NaN/Inf."""


class QuantisationError(NpuforgeError):
    """A layer that cannot be quantised (overflow, non-finite weights). Names the layer."""


class ArchError(NpuforgeError):
    """The arch JSON is wrong, or does not fit the program (names the parameters that differ)."""


class UnknownArchError(ArchError):
    """The name of no configuration: the command line is wrong, no file."""

    exit_code = 2


class FormatError(NpuforgeError):
    """A `.bin`, `.xmodel` or bundle is damaged. Names the section and the offset."""


class InstructionError(NpuforgeError):
    """An instruction that the hardware refuses. Names the index and the field."""


class DeviceError(NpuforgeError):
    """A device, or the vendor's runtime in front of it, is not there or refuses what it was given. Says what to install or what it said."""


class VerifyError(NpuforgeError):
    """A compile step left an invalid graph: a fault of ours. Names the step and the node."""


class GateError(NpuforgeError):
    """A precision gate was exceeded."""

    exit_code = 3


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM: raised by the command line's signal handler, so that clean-up runs and nothing half-written stays.

    Not an `Exception`, so that no `except Exception` around a library call swallows it.
    """

    exit_code = 130
