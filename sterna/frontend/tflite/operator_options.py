"""The options of operators: the tables that stand beside operands, and their fields.

A line is an operator, the number of its kind of table, and the fields in the order of their slots:
a name, the form of its number (of the module struct; [] for a vector, s for text), and what it is
if it is not there, 0 unless something else is said. `-` is a slot that is not used any more.
"""

from dataclasses import dataclass
from typing import Any

from sterna.frontend.tflite.flatbuffer import Table

_TABLES = """
CONV_2D 1 padding:b stride_w:i stride_h:i activation:b dilation_w:i=1 dilation_h:i=1 bias_type:b
DEPTHWISE_CONV_2D 2 padding:b stride_w:i stride_h:i multiplier:i activation:b dilation_w:i=1 \
dilation_h:i=1
AVERAGE_POOL_2D 5 padding:b stride_w:i stride_h:i filter_w:i filter_h:i activation:b
MAX_POOL_2D 5 padding:b stride_w:i stride_h:i filter_w:i filter_h:i activation:b
L2_POOL_2D 5 padding:b stride_w:i stride_h:i filter_w:i filter_h:i activation:b
SVDF 6 rank:i activation:b asymmetric:?
RNN 7 activation:b asymmetric:?
FULLY_CONNECTED 8 activation:b weights_format:b keep_num_dims:? asymmetric:? bias_type:b
SOFTMAX 9 beta:f
CONCATENATION 10 axis:i activation:b
ADD 11 activation:b pot_scale_int16:?=1
L2_NORMALIZATION 12 activation:b
LOCAL_RESPONSE_NORMALIZATION 13 radius:i bias:f alpha:f beta:f
LSTM 14 activation:b cell_clip:f proj_clip:f kernel_type:b asymmetric:?
RESIZE_BILINEAR 15 - - align_corners:? half_pixel_centers:?
CALL 16 subgraph:I
RESHAPE 17 new_shape:i[]
SPACE_TO_DEPTH 19 block_size:i
EMBEDDING_LOOKUP_SPARSE 20 combiner:b
MUL 21 activation:b
GATHER 23 axis:i batch_dims:i
MEAN 27 keep_dims:?
SUM 27 keep_dims:?
REDUCE_PROD 27 keep_dims:?
REDUCE_MAX 27 keep_dims:?
REDUCE_MIN 27 keep_dims:?
REDUCE_ANY 27 keep_dims:?
REDUCE_ALL 27 keep_dims:?
SUB 28 activation:b pot_scale_int16:?=1
DIV 29 activation:b
SQUEEZE 30 squeeze_dims:i[]
UNIDIRECTIONAL_SEQUENCE_RNN 31 time_major:? activation:b asymmetric:?
STRIDED_SLICE 32 begin_mask:i end_mask:i ellipsis_mask:i new_axis_mask:i shrink_axis_mask:i offset:?
SPLIT 35 num_splits:i
CAST 37 in_type:b out_type:b
ARG_MAX 40 output_type:b
TRANSPOSE_CONV 49 padding:b stride_w:i stride_h:i activation:b bias_type:b
SPARSE_TO_DENSE 50 validate_indices:?
SHAPE 55 out_type:b
ARG_MIN 57 output_type:b
FAKE_QUANT 58 min:f max:f num_bits:i narrow_range:?
PACK 59 values_count:i axis:i
ONE_HOT 61 axis:i
UNPACK 64 num:i axis:i
BIDIRECTIONAL_SEQUENCE_LSTM 69 activation:b cell_clip:f proj_clip:f merge_outputs:? time_major:?=1 \
asymmetric:?
BIDIRECTIONAL_SEQUENCE_RNN 70 time_major:? activation:b merge_outputs:? asymmetric:?
UNIDIRECTIONAL_SEQUENCE_LSTM 71 activation:b cell_clip:f proj_clip:f time_major:? asymmetric:? \
diagonal:?
RESIZE_NEAREST_NEIGHBOR 74 align_corners:? half_pixel_centers:?
LEAKY_RELU 75 alpha:f
MIRROR_PAD 77 mode:b
SPLIT_V 79 num_splits:i
UNIQUE 80 index_type:b=2
REVERSE_SEQUENCE 87 seq_dim:i batch_dim:i
IF 92 then_subgraph:i else_subgraph:i
WHILE 93 cond_subgraph:i body_subgraph:i
DEPTH_TO_SPACE 94 block_size:i
BATCH_MATMUL 101 adj_x:? adj_y:? asymmetric:?
CUMSUM 102 exclusive:? reverse:?
CALL_ONCE 103 init_subgraph:i
CONV_3D 106 padding:b stride_d:i stride_w:i stride_h:i activation:b dilation_d:i=1 dilation_w:i=1 \
dilation_h:i=1
CONV_3D_TRANSPOSE 106 padding:b stride_d:i stride_w:i stride_h:i activation:b dilation_d:i=1 \
dilation_w:i=1 dilation_h:i=1
VAR_HANDLE 111 container:s shared_name:s
RANDOM_STANDARD_NORMAL 114 seed:q seed2:q
RANDOM_UNIFORM 114 seed:q seed2:q
MULTINOMIAL 114 seed:q seed2:q
BUCKETIZE 115 boundaries:f[]
GELU 116 approximate:?
STABLEHLO_COMPOSITE 21 name:s decomposition_subgraph:i
"""

_ARRAYS = {"i[]": "int32", "f[]": "float32"}


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    form: str
    default: int

    def read(self, table: Table | None, slot: int) -> Any:
        if self.form == "s":
            return "" if table is None else table.text(slot)
        if self.form in _ARRAYS:
            return None if table is None else table.array(slot, _ARRAYS[self.form])
        if table is None:
            return self.default
        return table.number(slot, self.form, self.default)


def _parse(line: str) -> tuple[str, tuple[int, tuple[_Field | None, ...]]]:
    kind, number, *fields = line.split()
    found: list[_Field | None] = []
    for text in fields:
        name, _, rest = text.partition(":")
        form, _, default = rest.partition("=")
        found.append(None if text == "-" else _Field(name, form, int(default or 0)))
    return kind, (int(number), tuple(found))


_OPTIONS = dict(map(_parse, _TABLES.replace("\\\n", "").strip().splitlines()))


def read_options(kind: str, number: int, table: Table | None) -> dict[str, Any]:
    """The options of an operator by name, of a table of a kind that has this number."""
    if kind not in _OPTIONS:
        return {}
    wanted, fields = _OPTIONS[kind]
    if table is not None and number != wanted:
        if number:
            raise ValueError(f"its options are of the kind {number}; those of {kind} are {wanted}")
        table = None
    return {
        field.name: field.read(table, slot)
        for slot, field in enumerate(fields) if field is not None
    }
