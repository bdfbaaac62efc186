"""InMemory: a file object over bytes in memory that says why it has no file descriptor."""

import io


class InMemory(io.BytesIO):
    """An open file of a store: its bytes in memory, without a file of the operating system."""

    def fileno(self) -> int:
        """Raise io.UnsupportedOperation, an OSError, that names the alternatives to a descriptor."""
        raise io.UnsupportedOperation(
            "fileno: a file of a packed store is in memory and has no file descriptor. Instead of numpy.fromfile(file):"
            " numpy.frombuffer(file.read()); of mmap or numpy.load(..., mmap_mode): numpy.load without it;"
            " of array.tofile(file): file.write(array.tobytes())."
        )
