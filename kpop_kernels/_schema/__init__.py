"""Every operator of the package, declared once: schema, checks, fake implementation."""

from . import bases as bases
from . import kron as kron
from . import quantize as quantize
from . import roots as roots
from . import whiten as whiten
from .checks import compute_dtype as compute_dtype
from .checks import scalar as scalar
from .operator import NAMESPACE as NAMESPACE
from .operator import OPERATORS as OPERATORS
from .operator import Operator as Operator
