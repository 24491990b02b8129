"""Fused kernels for the matrix work inside curvature-aware optimizers, and the optimizers built on them."""

from . import backends as backends
from .ops import InverseRootInfo as InverseRootInfo
from .ops import QuantizedDynamic8 as QuantizedDynamic8
from .ops import QuantizedInt8 as QuantizedInt8
from .ops import adam8_ as adam8_
from .ops import adam8_foreach_ as adam8_foreach_
from .ops import dequantize_dynamic8 as dequantize_dynamic8
from .ops import dequantize_dynamic8_foreach as dequantize_dynamic8_foreach
from .ops import dequantize_int8 as dequantize_int8
from .ops import dequantize_int8_foreach as dequantize_int8_foreach
from .ops import ema_int8_ as ema_int8_
from .ops import ema_int8_foreach_ as ema_int8_foreach_
from .ops import ema_sq_dynamic8_ as ema_sq_dynamic8_
from .ops import ema_sq_dynamic8_foreach_ as ema_sq_dynamic8_foreach_
from .ops import gram_ema_ as gram_ema_
from .ops import inverse_root as inverse_root
from .ops import inverse_root_foreach as inverse_root_foreach
from .ops import kron_adam_ as kron_adam_
from .ops import kron_rotate as kron_rotate
from .ops import newton_schulz as newton_schulz
from .ops import newton_schulz_foreach as newton_schulz_foreach
from .ops import quantize_dynamic8 as quantize_dynamic8
from .ops import quantize_dynamic8_foreach as quantize_dynamic8_foreach
from .ops import quantize_int8 as quantize_int8
from .ops import quantize_int8_foreach as quantize_int8_foreach
from .ops import rebase_moments_ as rebase_moments_
from .ops import stochastic_round_bf16 as stochastic_round_bf16
from .ops import stochastic_round_bf16_foreach as stochastic_round_bf16_foreach
from .ops import symm_mm as symm_mm
from .ops import syrk as syrk
from .ops import zeropower_via_newtonschulz5 as zeropower_via_newtonschulz5

__version__ = "0.1.0"
