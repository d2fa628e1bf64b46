"""Layers of networks as tensor expressions."""

from sterna.topi.nn import utils as utils
from sterna.topi.nn.activations import (
    adaptive_pool,
    batch_norm,
    batch_to_space_nd,
    bias_add,
    depth_to_space,
    fast_softmax,
    flatten,
    global_pool,
    instance_norm,
    l2_normalize,
    layer_norm,
    leaky_relu,
    log_softmax,
    lrn,
    mirror_pad,
    pool1d,
    pool2d,
    pool3d,
    prelu,
    relu,
    rms_norm,
    scale_shift_nchw,
    scale_shift_nhwc,
    softmax,
    space_to_batch_nd,
    space_to_depth,
    upsampling,
)
from sterna.topi.nn.conv import (
    conv1d_ncw,
    conv1d_nwc,
    conv2d,
    conv2d_hwcn,
    conv2d_nchw,
    conv2d_nhwc,
    conv2d_transpose_nchw,
    conv3d_ncdhw,
    conv3d_ndhwc,
    depthwise_conv2d_nchw,
    depthwise_conv2d_nhwc,
    group_conv2d_nchw,
    group_conv2d_nhwc,
)
from sterna.topi.nn.of_graphs import (
    conv1d_transpose_ncw,
    conv3d_transpose_ncdhw,
    correlation_nchw,
    cross_entropy_with_logits,
    deformable_conv2d_nchw,
    fifo_buffer,
    group_norm,
    nll_loss,
)
from sterna.topi.nn.padding import dilate, pad
from sterna.topi.nn.products import batch_matmul, dense, matmul
from sterna.topi.operators import operator

sparse_dense = operator("nn.sparse_dense")

__all__ = [
    "adaptive_pool", "batch_matmul", "batch_norm", "batch_to_space_nd", "bias_add", "conv1d_ncw",
    "conv1d_nwc", "conv1d_transpose_ncw", "conv3d_transpose_ncdhw", "correlation_nchw",
    "cross_entropy_with_logits", "conv2d", "conv2d_hwcn", "conv2d_nchw", "conv2d_nhwc",
    "conv2d_transpose_nchw", "conv3d_ncdhw", "conv3d_ndhwc", "deformable_conv2d_nchw", "dense",
    "depth_to_space", "depthwise_conv2d_nchw", "depthwise_conv2d_nhwc", "dilate", "fast_softmax",
    "fifo_buffer", "flatten", "global_pool", "group_conv2d_nchw", "group_conv2d_nhwc",
    "group_norm", "instance_norm", "l2_normalize", "layer_norm", "leaky_relu", "log_softmax",
    "lrn", "matmul", "mirror_pad", "nll_loss", "pad", "pool1d", "pool2d", "pool3d",
    "prelu", "relu", "rms_norm", "scale_shift_nchw", "scale_shift_nhwc", "softmax",
    "space_to_batch_nd", "space_to_depth", "sparse_dense", "upsampling",
]
