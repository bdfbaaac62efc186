"""XML of a file, without entities."""

from xml.etree import ElementTree

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.measurements.measurement import File


def root_of(file: File) -> ElementTree.Element:
    """Return the root element; raises SpecError for broken XML, with its line, and for entities."""
    if "<!ENTITY" in file.text:
        raise SpecError(f"{file.name}: declares entities, which are not read.")
    try:
        return ElementTree.fromstring(file.text.strip())
    except ElementTree.ParseError as error:
        raise file.broken(error.position[0], f"broken XML, {error}") from None
