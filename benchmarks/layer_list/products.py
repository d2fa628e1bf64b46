"""Dense layers of many widths and lengths, products of two inputs, attention, recurrent nets."""

from layer_list.layer import Layer, layers_of
from layer_list.operators import (
    attention,
    dense,
    feed_forward,
    gemm,
    matmul,
    recurrent,
    split_attention,
)

LAYERS: list[Layer] = []

# ---- dense layers: rows, inputs, outputs ----

for _name, _rows, _in, _out, _more in (
    ("bert", 8, 768, 768, ""), ("bert", 16, 768, 3072, "f"), ("bert", 32, 3072, 768, "q"),
    ("bert", 64, 768, 768, "f"), ("bert", 128, 768, 768, "q f"), ("bert", 128, 768, 3072, "q"),
    ("bert", 128, 3072, 768, ""), ("bert", 384, 768, 768, ""), ("bert", 512, 768, 2304, ""),
    ("minilm", 32, 384, 1536, "q"), ("minilm", 256, 384, 384, "8"), ("minilm", 256, 1536, 384, ""),
    ("tiny_bert", 64, 128, 512, "8 f"), ("tiny_bert", 128, 312, 1200, ""),
    ("albert", 128, 128, 768, ""),
    ("bert_large", 16, 1024, 4096, ""), ("bert_large", 64, 1024, 1024, "q"),
    ("t5_small", 48, 512, 2048, ""), ("gpt2", 10, 768, 2304, ""), ("gpt2", 100, 768, 3072, ""),
    ("vit", 197, 192, 576, "8 q"), ("vit", 197, 384, 1536, ""), ("vit", 197, 768, 768, "f"),
    ("swin", 3136, 96, 288, "q"), ("swin", 3136, 96, 384, ""), ("swin", 784, 192, 576, ""),
    ("swin", 784, 768, 192, "f"), ("swin", 196, 384, 1152, "8"), ("swin", 49, 768, 2304, "q"),
    ("swin_merge", 784, 384, 192, ""), ("convnext", 3136, 96, 384, ""),
    ("convnext", 784, 768, 192, ""),
    ("mixer", 512, 196, 256, ""), ("whisper_tiny", 1500, 384, 384, ""),
    ("whisper_tiny", 1500, 384, 1536, ""),
    ("segformer", 1024, 64, 256, ""), ("sam", 196, 256, 2048, ""), ("dlrm", 128, 13, 512, "q"),
    ("dlrm", 128, 512, 256, "f"), ("dlrm", 128, 479, 1024, "q"), ("dlrm", 256, 1024, 1024, ""),
    ("wide_deep", 64, 429, 400, "8"), ("ncf", 512, 128, 64, ""), ("pointnet", 1024, 67, 64, ""),
    ("odd", 7, 37, 51, "8"), ("odd", 33, 129, 257, "f"), ("nerf", 4096, 63, 256, ""),
    ("nerf", 1024, 256, 1, ""),
):
    LAYERS.extend(layers_of(
        "dense", f"{_name}_{_rows}x{_in}x{_out}", dense(_rows, _in, _out), _more
    ))
for _name, _rows, _in, _out, _act in (
    ("bert", 128, 768, 3072, "Gelu"), ("gpt2", 32, 768, 3072, "GeluTanh"),
    ("llama", 16, 2048, 5632, "SiLU"),
    ("mlp", 64, 784, 512, "Relu"), ("mobilenet3", 1, 960, 1280, "HardSwish"),
):
    LAYERS.extend(layers_of(
        "dense", f"{_name}_{_act}_{_rows}x{_in}x{_out}", dense(_rows, _in, _out, _act)
    ))
for _name, _rows, _in, _hidden in (
    ("bert", 64, 768, 3072), ("minilm", 128, 384, 1536), ("vit_tiny", 197, 192, 768),
    ("swin", 784, 192, 768),
):
    LAYERS.extend(layers_of(
        "dense", f"{_name}_feed_forward_{_rows}x{_in}x{_hidden}", feed_forward(_rows, _in, _hidden)
    ))

# ---- one row, and few: the weights are read once ----

for _name, _rows, _in, _out, _more in (
    ("resnet18_head", 1, 512, 1000, "8 q f"), ("mobilenet_head", 1, 1280, 1000, "q"),
    ("resnet50_head", 1, 2048, 1000, "8 f"), ("alexnet_head", 1, 4096, 4096, ""),
    ("vgg_head", 1, 4096, 1000, "q"), ("bert_pooler", 1, 768, 768, "8"), ("lenet", 1, 400, 120, ""),
    ("whisper_tiny", 1, 384, 384, "q"), ("whisper_tiny", 1, 384, 51865, ""),
    ("whisper_base", 1, 512, 2048, ""),
    ("whisper_large", 1, 1280, 5120, ""), ("mnist", 1, 784, 128, "q"), ("face", 1, 25088, 512, ""),
    ("dqn", 1, 3136, 512, "8"), ("classifier", 1, 768, 2, ""),
    ("efficientnet_b4_head", 1, 1792, 1000, ""),
):
    LAYERS.extend(layers_of("dense-row", f"{_name}_{_rows}x{_in}x{_out}", gemm(_rows, _in, _out),
                            _more))
for _name, _rows, _in, _out, _more in (
    ("gpt2", 1, 768, 2304, "f q"), ("gpt2", 1, 768, 3072, ""), ("gpt2", 1, 3072, 768, "q"),
    ("gpt2", 1, 768, 50257, ""), ("gpt2", 2, 768, 3072, ""), ("gpt2", 4, 768, 768, "f"),
    ("gpt2_medium", 1, 1024, 4096, ""), ("t5_small", 1, 512, 32128, ""),
    ("tinyllama", 1, 2048, 5632, ""),
    ("tinyllama", 1, 5632, 2048, ""), ("tinyllama", 1, 2048, 256, ""), ("llama", 1, 4096, 4096, ""),
    ("smollm", 1, 576, 1536, "q f"), ("smollm", 3, 576, 576, ""), ("qwen", 1, 896, 4864, ""),
    ("transducer", 1, 640, 1025, ""), ("beam", 5, 512, 2048, "q"), ("odd", 1, 333, 77, ""),
):
    LAYERS.extend(layers_of("dense-row", f"{_name}_{_rows}x{_in}x{_out}", dense(_rows, _in, _out),
                            _more))

# ---- products of two inputs ----

for _name, _a, _b in (
    ("square", (64, 64), (64, 64)), ("square", (128, 128), (128, 128)),
    ("square", (256, 256), (256, 256)),
    ("square", (512, 512), (512, 512)), ("square", (768, 768), (768, 768)),
    ("odd", (100, 300), (300, 50)),
    ("tall", (2048, 64), (64, 64)), ("wide", (64, 64), (64, 2048)),
    ("deep", (32, 4096), (4096, 32)),
    ("row", (1, 1024), (1024, 1024)), ("column", (1024, 1024), (1024, 1)),
    ("outer", (512, 1), (1, 512)),
    ("scores", (12, 128, 64), (12, 64, 128)), ("values", (12, 128, 128), (12, 128, 64)),
    ("scores", (12, 512, 64), (12, 64, 512)), ("values", (8, 256, 256), (8, 256, 32)),
    ("batched", (64, 49, 32), (64, 32, 49)), ("batched", (100, 16, 16), (100, 16, 16)),
    ("batched_small", (512, 4, 4), (512, 4, 4)), ("dlrm_dots", (128, 27, 64), (128, 64, 27)),
    ("broadcast", (8, 64, 256), (256, 256)), ("broadcast", (4, 12, 64, 64), (12, 64, 64)),
    ("decode", (12, 1, 64), (12, 64, 512)), ("decode", (12, 1, 512), (12, 512, 64)),
    ("linear_attention", (8, 32, 1024), (8, 1024, 32)), ("clip", (8, 512), (512, 100)),
    ("retrieval", (1, 384), (384, 20000)),
):
    _shapes = f"{'x'.join(map(str, _a))}_{'x'.join(map(str, _b))}"
    LAYERS.extend(layers_of("matmul", f"{_name}_{_shapes}", matmul(_a, _b)))

# ---- attention: heads, queries, keys, width of a head, windows ----

for _name, _heads, _queries, _keys, _width, _windows, _more in (
    ("bert", 12, 64, 64, 64, 1, ""), ("bert", 12, 128, 128, 64, 1, "8"),
    ("bert", 12, 384, 384, 64, 1, ""),
    ("bert", 12, 512, 512, 64, 1, ""), ("minilm", 12, 128, 128, 32, 1, "8"),
    ("minilm", 12, 256, 256, 32, 1, ""),
    ("tiny_bert", 2, 128, 128, 64, 1, "8"), ("bert_large", 16, 128, 128, 64, 1, ""),
    ("vit_tiny", 3, 197, 197, 64, 1, "8"), ("vit_base", 12, 197, 197, 64, 1, ""),
    ("vit_384", 6, 577, 577, 64, 1, ""), ("swin", 3, 49, 49, 32, 64, ""),
    ("swin", 6, 49, 49, 32, 16, "8"),
    ("swin", 12, 49, 49, 32, 4, ""), ("swin", 24, 49, 49, 32, 1, ""),
    ("whisper_tiny", 6, 1500, 1500, 64, 1, ""),
    ("whisper_cross", 6, 1, 1500, 64, 1, ""), ("whisper_decode", 6, 1, 100, 64, 1, ""),
    ("gpt2_decode", 12, 1, 256, 64, 1, ""), ("gpt2_decode", 12, 1, 1024, 64, 1, ""),
    ("llama_decode", 32, 1, 512, 64, 1, ""), ("llama_decode", 32, 1, 256, 128, 1, ""),
    ("diffusion_cross", 8, 1024, 77, 40, 1, ""), ("diffusion_cross", 8, 256, 77, 80, 1, ""),
    ("diffusion_self", 8, 1024, 1024, 40, 1, ""), ("detr", 8, 100, 850, 32, 1, ""),
    ("conformer", 4, 250, 250, 64, 1, ""), ("perceiver", 8, 256, 2048, 32, 1, ""),
    ("segformer_reduced", 1, 1024, 64, 32, 1, ""), ("odd", 5, 77, 77, 51, 1, ""),
):
    _windowed = f"_{_windows}windows" if _windows > 1 else ""
    LAYERS.extend(layers_of(
        "attention", f"{_name}_{_heads}x{_queries}x{_keys}x{_width}{_windowed}",
        attention(_heads, _queries, _keys, _width, _windows), _more,
    ))
for _name, _tokens, _heads, _width in (
    ("bert", 128, 12, 64), ("minilm", 64, 12, 32), ("vit_tiny", 197, 3, 64),
    ("wav2vec", 199, 12, 64),
    ("bert", 16, 12, 64), ("gpt2", 256, 12, 64),
):
    LAYERS.extend(layers_of(
        "attention", f"{_name}_split_{_tokens}x{_heads}x{_width}",
        split_attention(_tokens, _heads, _width), "8" if _tokens < 100 else "",
    ))

# ---- recurrent networks: steps, inputs, hidden ----

for _name, _op, _steps, _in, _hidden, _both, _more in (
    ("silero", "LSTM", 1, 128, 128, False, ""), ("crnn", "LSTM", 26, 512, 256, True, "8"),
    ("tagger", "LSTM", 50, 100, 200, True, "f"), ("language", "LSTM", 35, 650, 650, False, ""),
    ("deepspeech", "LSTM", 32, 512, 512, False, ""), ("rnnt", "LSTM", 1, 320, 640, False, "8"),
    ("small", "LSTM", 100, 32, 32, False, "8"), ("tacotron", "LSTM", 40, 512, 256, True, ""),
    ("seq2seq", "GRU", 20, 256, 256, False, "8 f"), ("seq2seq", "GRU", 20, 256, 512, True, ""),
    ("keyword", "GRU", 98, 40, 64, False, ""), ("gru4rec", "GRU", 20, 100, 100, False, "8"),
    ("wavernn", "GRU", 1, 128, 512, False, ""), ("rnnoise", "GRU", 100, 42, 24, False, ""),
    ("plain", "RNN", 30, 128, 128, False, "8"),
):
    _way = "_both" if _both else ""
    LAYERS.extend(layers_of(
        "recurrent", f"{_name}_{_op}_{_steps}x{_in}x{_hidden}{_way}",
        recurrent(_op, _steps, _in, _hidden, _both), _more,
    ))
