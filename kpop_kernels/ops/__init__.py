"""The operators as functions: documented, with defaults, each one call to ``torch.ops.kpop``."""

from .adam8 import adam8_ as adam8_
from .adam8 import adam8_foreach_ as adam8_foreach_
from .dynamic8 import QuantizedDynamic8 as QuantizedDynamic8
from .dynamic8 import dequantize_dynamic8 as dequantize_dynamic8
from .dynamic8 import dequantize_dynamic8_foreach as dequantize_dynamic8_foreach
from .dynamic8 import quantize_dynamic8 as quantize_dynamic8
from .dynamic8 import quantize_dynamic8_foreach as quantize_dynamic8_foreach
from .ema8 import ema_int8_ as ema_int8_
from .ema8 import ema_int8_foreach_ as ema_int8_foreach_
from .ema8 import ema_sq_dynamic8_ as ema_sq_dynamic8_
from .ema8 import ema_sq_dynamic8_foreach_ as ema_sq_dynamic8_foreach_
from .gram import gram_ema_ as gram_ema_
from .kron import kron_adam_ as kron_adam_
from .kron import kron_rotate as kron_rotate
from .kron import rebase_moments_ as rebase_moments_
from .quantize_int8 import QuantizedInt8 as QuantizedInt8
from .quantize_int8 import dequantize_int8 as dequantize_int8
from .quantize_int8 import dequantize_int8_foreach as dequantize_int8_foreach
from .quantize_int8 import quantize_int8 as quantize_int8
from .quantize_int8 import quantize_int8_foreach as quantize_int8_foreach
from .stochastic_round import stochastic_round_bf16 as stochastic_round_bf16
from .stochastic_round import stochastic_round_bf16_foreach as stochastic_round_bf16_foreach
