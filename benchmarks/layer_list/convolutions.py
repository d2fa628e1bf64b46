"""Convolutions over images, from the shape lists of networks that people use.

A row is the network, input channels, output channels, the image's size, and what is unusual; then
the variants beside float32, a batch of one and constant weights: 8 for a batch of eight, q for
bytes, f for free weights.
"""

from typing import Any

from layer_list.layer import Layer, layers_of
from layer_list.operators import Conv, Extents

LAYERS: list[Layer] = []
_row: tuple[Any, ...]


def _add(
    kind: str, network: str, inputs: int, outputs: int, image: Extents, window: Extents = 3,
    variants: str = "", **settings: Any,
) -> None:
    size = (image, image) if isinstance(image, int) else image
    made = Conv(inputs, outputs, size, window, **settings)
    LAYERS.extend(layers_of(kind, f"{network}_{made.name}", made, variants))


# ---- windows of 3 x 3 and more, one group ----

for _row in (
    ("vgg16", 3, 64, 224, 3, "f"), ("vgg16", 64, 64, 112, 3), ("vgg16", 64, 128, 112, 3),
    ("vgg16", 128, 256, 56, 3, "q"), ("vgg16", 256, 256, 28, 3), ("vgg16", 256, 512, 28, 3),
    ("vgg16", 512, 512, 14, 3, "f q"),
    ("alexnet", 64, 192, 27, 5, "f 8"), ("alexnet", 192, 384, 13, 3, "q"),
    ("alexnet", 384, 256, 13, 3), ("alexnet", 256, 256, 13, 3, "f"),
    ("resnet18", 64, 64, 56, 3, "q f"), ("resnet18", 128, 128, 28, 3, "8 q"),
    ("resnet18", 256, 256, 14, 3, "f q"), ("resnet18", 512, 512, 7, 3, "8 q f"),
    ("densenet121", 128, 32, 56, 3), ("densenet121", 128, 32, 28, 3, "8"),
    ("densenet121", 128, 32, 14, 3, "q"), ("densenet121", 128, 32, 7, 3, "8f"),
    ("squeezenet", 16, 64, 55, 3), ("squeezenet", 32, 128, 27, 3), ("squeezenet", 64, 256, 13, 3),
    ("googlenet", 16, 32, 28, 5), ("googlenet", 24, 64, 14, 5), ("googlenet", 48, 128, 7, 5),
    ("inception3", 48, 64, 35, 5, "q"), ("inception3", 64, 96, 35, 3),
    ("inception3", 96, 96, 35, 3), ("inception3", 128, 128, 17, (1, 7), "8"),
    ("inception3", 128, 192, 17, (7, 1)), ("inception3", 160, 160, 17, (7, 1), "q"),
    ("inception3", 192, 192, 17, (1, 7), "f"), ("inception3", 384, 384, 8, (1, 3)),
    ("inception3", 384, 384, 8, (3, 1)), ("inception3", 448, 384, 8, 3),
    ("yolov8n", 16, 16, 160, 3), ("yolov8n", 32, 32, 80, 3, "q"), ("yolov8s", 64, 64, 80, 3),
    ("yolov8s", 128, 128, 40, 3, "q"), ("yolov8m", 96, 96, 80, 3), ("yolov3", 128, 256, 40, 3),
    ("yolov3", 512, 1024, 10, 3), ("yolov7", 64, 64, 160, 3), ("darknet", 32, 64, 160, 3),
    ("hrnet", 18, 18, 64, 3), ("hrnet", 36, 36, 32, 3, "8"), ("hrnet", 48, 48, 64, 3),
    ("hrnet", 144, 144, 8, 3), ("unet", 3, 64, 256, 3), ("unet", 64, 64, 128, 3, "f"),
    ("unet", 256, 128, 64, 3), ("unet", 512, 256, 32, 3), ("unet", 512, 1024, 16, 3),
    ("diffusion", 4, 320, 64, 3), ("diffusion", 320, 320, 32, 3), ("diffusion", 640, 640, 16, 3),
    ("diffusion", 1280, 1280, 8, 3), ("diffusion", 320, 4, 64, 3), ("srresnet", 3, 64, 96, 9),
    ("srresnet", 64, 64, 96, 3, "f"), ("srresnet", 64, 3, 96, 9), ("fsrcnn", 1, 56, 128, 5),
    ("fsrcnn", 12, 12, 128, 3), ("espcn", 32, 12, 128, 3), ("esrgan", 96, 32, 64, 3),
    ("crnn", 1, 64, (32, 100), 3), ("crnn", 128, 256, (8, 25), 3, "8"),
    ("crnn", 256, 512, (4, 26), 3), ("facenet", 32, 64, 80, 3), ("mtcnn", 3, 10, 96, 3),
    ("openpose", 185, 128, 46, 7), ("policy", 192, 192, 19, 3, "8 q"), ("policy", 17, 192, 19, 5),
    ("dqn", 32, 64, 20, 4, "8"), ("regnet_stem", 32, 32, 112, 3),
):
    _add("conv", *_row)

# ---- strides, and the first layers of networks ----

for _name, _in, _out, _image, _window, _stride, _pad, _more in (
    ("alexnet", 3, 64, 224, 11, 4, 2, "8 f q"), ("resnet", 3, 64, 224, 7, 2, 3, "q f"),
    ("resnet18", 64, 128, 56, 3, 2, 1, "q f"), ("resnet18", 128, 256, 28, 3, 2, 1, "8"),
    ("resnet18", 256, 512, 14, 3, 2, 1, "q"), ("mobilenet", 3, 32, 224, 3, 2, 1, "q 8"),
    ("mobilenet3", 3, 16, 224, 3, 2, 1, "f"), ("efficientnet_b4", 3, 48, 380, 3, 2, 1, ""),
    ("inception3", 3, 32, 299, 3, 2, 0, ""), ("inception3", 288, 384, 35, 3, 2, 0, ""),
    ("inception3", 192, 320, 17, 3, 2, 0, "q"), ("yolov5s", 3, 32, 320, 6, 2, 2, "q"),
    ("yolov5s", 3, 32, 640, 6, 2, 2, ""), ("yolov5n", 3, 16, 1280, 6, 2, 2, ""),
    ("yolov8n", 16, 32, 160, 3, 2, 1, "q 8"), ("yolov8n", 32, 64, 80, 3, 2, 1, "f"),
    ("yolov8s", 128, 256, 40, 3, 2, 1, ""), ("yolov8s", 256, 512, 20, 3, 2, 1, "q"),
    ("ssd300", 128, 256, 10, 3, 2, 1, "8"), ("retinanet", 256, 256, 13, 3, 2, 1, ""),
    ("unet_vae", 128, 128, 129, 3, 2, 0, ""), ("diffusion", 320, 320, 64, 3, 2, 1, ""),
    ("dqn", 4, 32, 84, 8, 4, 0, "8 f"), ("deepspeech", 1, 32, (161, 200), (41, 11), 2, 0, ""),
    ("deepspeech", 32, 32, (61, 95), (21, 11), (2, 1), 0, ""),
    ("patchgan", 3, 64, 256, 4, 2, 1, ""),
    ("patchgan", 64, 128, 128, 4, 2, 1, "f"), ("levit", 3, 32, 224, 3, 2, 1, ""),
):
    _add("conv-strided", _name, _in, _out, _image, _window, _more, stride=_stride, padding=_pad)

# ---- patches: windows that do not overlap ----

for _name, _in, _out, _image, _size, _more in (
    ("vit_tiny", 3, 192, 224, 16, "8 q"), ("vit_small", 3, 384, 224, 16, ""),
    ("vit_base", 3, 768, 224, 16, "f 8"), ("vit_base", 3, 768, 224, 32, "q"),
    ("vit_large", 3, 1024, 224, 14, ""), ("vit_small", 3, 384, 224, 8, ""),
    ("swin", 3, 96, 224, 4, "8 q f"), ("convnext_down", 96, 192, 56, 2, "8 f"),
    ("convnext_down", 192, 384, 28, 2, "q"), ("convnext_down", 384, 768, 14, 2, ""),
    ("segformer_reduce", 32, 32, 128, 8, ""), ("sam", 3, 768, 512, 16, ""),
):
    _add("conv-patch", _name, _in, _out, _image, _size, _more, stride=_size, padding=0, after="")

# ---- 1 x 1 ----

for _row in (
    ("resnet50", 64, 256, 56, "q f"), ("resnet50", 256, 64, 56, "8"),
    ("resnet50", 512, 128, 28, "q"),
    ("resnet50", 128, 512, 28, "f"), ("resnet50", 1024, 256, 14, "8"),
    ("resnet50", 256, 1024, 14, "q"), ("resnet50", 2048, 512, 7, "f"),
    ("resnet50", 512, 2048, 7, "q 8"), ("mobilenet2", 16, 96, 112), ("mobilenet2", 96, 24, 56, "q"),
    ("mobilenet2", 24, 144, 56, "8 f"), ("mobilenet2", 144, 32, 28), ("mobilenet2", 192, 64, 14),
    ("mobilenet2", 384, 96, 14, "q"), ("mobilenet2", 576, 160, 7),
    ("mobilenet2", 320, 1280, 7, "8q"),
    ("mobilenet3", 40, 120, 28), ("mobilenet3", 72, 40, 28), ("mobilenet3", 112, 672, 14, "f"),
    ("efficientnet_b0", 32, 16, 112), ("efficientnet_b0", 240, 40, 28),
    ("efficientnet_b0", 1152, 320, 7),
    ("efficientnet_b4", 56, 336, 48), ("efficientnet_b4", 272, 1632, 12, "q"),
    ("inception3", 192, 64, 35), ("inception3", 768, 192, 17, "q"), ("inception3", 2048, 448, 8),
    ("densenet121", 256, 128, 56), ("densenet121", 512, 128, 28, "8"),
    ("densenet121", 1000, 128, 14),
    ("squeezenet", 96, 16, 55), ("squeezenet", 512, 1000, 13, "q"), ("regnet_x400", 32, 64, 56),
    ("regnet_y800", 144, 320, 28), ("regnet_y8", 448, 896, 14), ("shufflenet2", 58, 58, 28, "8 q"),
    ("shufflenet2", 116, 116, 14, "f"), ("shufflenet2", 232, 232, 7), ("shufflenet2", 464, 1024, 7),
    ("deeplab", 2048, 256, 28), ("deeplab", 1280, 256, 33), ("deeplab", 304, 256, 65),
    ("deeplab", 256, 21, 65), ("fcn", 512, 21, 28), ("yolov8n", 48, 32, 80, "q"),
    ("yolov8s", 384, 256, 20), ("yolov5s", 512, 256, 20, "8"), ("diffusion", 640, 320, 32),
    ("squeeze_excite", 96, 4, 1), ("squeeze_excite", 32, 8, 1, "f"),
    ("squeeze_excite", 48, 1152, 1, "8"),
    ("squeeze_excite", 1152, 48, 1, "q 8"), ("hrnet", 36, 18, 32), ("genet", 640, 1920, 7),
):
    _network, _in, _out, _size, *_rest = _row
    _add("conv-pointwise", _network, _in, _out, _size, 1, *_rest)
for _name, _in, _out, _image, _more in (
    ("resnet18", 64, 128, 56, "q"), ("resnet50", 256, 512, 56, "f"),
    ("resnet50", 512, 1024, 28, "8"),
    ("resnet50", 1024, 2048, 14, "q"), ("regnet_y800", 64, 144, 56, ""),
    ("resnext", 256, 512, 28, ""),
):
    _add("conv-pointwise", _name, _in, _out, _image, 1, _more, stride=2, after="")

# ---- groups ----

for _name, _in, _out, _image, _window, _groups, _stride, _more in (
    ("resnext50", 128, 128, 56, 3, 32, 1, "q f 8"), ("resnext50", 256, 256, 56, 3, 32, 2, ""),
    ("resnext50", 256, 256, 28, 3, 32, 1, "q"), ("resnext50", 512, 512, 28, 3, 32, 2, ""),
    ("resnext50", 512, 512, 14, 3, 32, 1, "f 8"), ("resnext50", 1024, 1024, 7, 3, 32, 1, "q"),
    ("resnext101", 256, 256, 56, 3, 32, 1, ""), ("resnext101", 512, 512, 28, 3, 32, 1, "f"),
    ("resnext101", 1024, 1024, 14, 3, 32, 1, ""), ("resnext101", 2048, 2048, 7, 3, 32, 1, ""),
    ("resnext101", 256, 256, 28, 3, 64, 1, "q"), ("regnet_x400", 32, 32, 112, 3, 2, 2, ""),
    ("regnet_x400", 64, 64, 28, 3, 4, 1, "8 q"), ("regnet_x400", 160, 160, 14, 3, 10, 1, "f"),
    ("regnet_x400", 400, 400, 7, 3, 25, 1, "8"), ("regnet_x800", 288, 288, 14, 3, 18, 1, ""),
    ("regnet_x800", 672, 672, 7, 3, 42, 1, "q"), ("regnet_y8", 224, 224, 56, 3, 4, 1, ""),
    ("regnet_y8", 448, 448, 28, 3, 8, 1, "f"), ("regnet_y8", 896, 896, 14, 3, 16, 1, "q"),
    ("regnet_y8", 2016, 2016, 7, 3, 36, 1, ""), ("regnet_y16", 224, 448, 56, 3, 2, 2, ""),
    ("shufflenet1", 24, 60, 56, 1, 1, 1, ""), ("shufflenet1", 240, 60, 28, 1, 3, 1, "8 f"),
    ("shufflenet1", 60, 240, 28, 1, 3, 1, "q"), ("shufflenet1", 480, 120, 14, 1, 3, 1, ""),
    ("shufflenet1", 960, 240, 7, 1, 3, 1, ""), ("shufflenet1", 272, 68, 28, 1, 4, 1, "q f"),
    ("shufflenet1", 68, 272, 28, 1, 4, 1, "8"), ("shufflenet1", 544, 136, 14, 1, 4, 1, ""),
    ("shufflenet1", 384, 96, 28, 1, 8, 1, "q"), ("shufflenet1", 1536, 384, 7, 1, 8, 1, ""),
    ("condensenet", 128, 32, 16, 3, 4, 1, ""), ("alexnet_two", 96, 256, 27, 5, 2, 1, "f q 8"),
    ("alexnet_two", 384, 384, 13, 3, 2, 1, ""), ("alexnet_two", 384, 256, 13, 3, 2, 1, "8"),
    ("resnest50", 64, 128, 56, 3, 2, 1, ""), ("sknet", 128, 128, 28, 3, 32, 1, ""),
    ("squeezebert", 768, 768, (1, 128), 1, 4, 1, "8"), ("ghostnet", 36, 72, 56, 3, 4, 1, ""),
):
    _add("conv-grouped", _name, _in, _out, _image, _window, _more, groups=_groups, stride=_stride,
         padding=None if _stride == 1 else 1)

# ---- one group per channel ----

for _name, _channels, _image, _window, _stride, _more in (
    ("mobilenet1", 32, 112, 3, 1, "q f"), ("mobilenet1", 64, 112, 3, 2, ""),
    ("mobilenet1", 128, 56, 3, 1, "8 q"), ("mobilenet1", 256, 28, 3, 1, ""),
    ("mobilenet1", 512, 14, 3, 1, "f 8"), ("mobilenet1", 1024, 7, 3, 1, "q"),
    ("mobilenet2", 96, 112, 3, 2, "q"), ("mobilenet2", 144, 56, 3, 1, ""),
    ("mobilenet2", 192, 28, 3, 2, "8"), ("mobilenet2", 576, 14, 3, 1, ""),
    ("mobilenet2", 960, 7, 3, 1, "f q"), ("mobilenet3", 72, 56, 5, 2, ""),
    ("mobilenet3", 120, 28, 5, 1, "q"), ("mobilenet3", 16, 112, 3, 1, ""),
    ("efficientnet_b0", 144, 56, 5, 2, ""), ("efficientnet_b0", 240, 28, 3, 2, ""),
    ("efficientnet_b0", 480, 14, 5, 1, "8 q"), ("efficientnet_b0", 672, 14, 5, 2, ""),
    ("efficientnet_b0", 1152, 7, 5, 1, "f"), ("convnext", 96, 56, 7, 1, "8 f"),
    ("convnext", 192, 28, 7, 1, "q"), ("convnext", 384, 14, 7, 1, ""),
    ("convnext", 768, 7, 7, 1, "8"),
    ("convmixer", 256, 32, 9, 1, ""), ("mixnet", 120, 28, 9, 1, ""),
    ("replknet", 128, 28, 31, 1, ""),
    ("slak", 96, 28, (5, 51), 1, ""), ("shufflenet2", 58, 56, 3, 2, ""),
    ("shufflenet2", 116, 14, 3, 1, "q"), ("inceptionnext", 12, 56, (1, 11), 1, ""),
    ("fastvit", 64, 64, 7, 1, ""), ("xception", 728, 19, 3, 1, "q"), ("ssdlite", 256, 10, 3, 2, ""),
    ("poolformer", 320, 14, 3, 1, ""), ("segformer", 128, 128, 3, 1, ""), ("cvt", 64, 56, 3, 2, ""),
):
    _add("conv-depthwise", _name, _channels, _channels, _image, _window, _more, groups=_channels,
         stride=_stride, after="Relu6")
for _name, _in, _out, _image in (("multiplier", 32, 64, 56), ("xception", 64, 128, 37),
                                 ("ghostnet", 24, 48, 28), ("stem", 3, 48, 112)):
    _add("conv-depthwise", _name, _in, _out, _image, 3, groups=_in)

# ---- dilated ----

for _name, _in, _out, _image, _window, _dilation, _groups, _more in (
    ("deeplab_aspp", 320, 256, 33, 3, 6, 1, "q"), ("deeplab_aspp", 320, 256, 33, 3, 12, 1, "f"),
    ("deeplab_aspp", 320, 256, 33, 3, 18, 1, ""), ("deeplab_aspp", 960, 128, 28, 3, 24, 1, ""),
    ("deeplab_aspp", 2048, 256, 14, 3, 12, 1, ""), ("deeplab_resnet", 256, 256, 28, 3, 2, 1, "q"),
    ("deeplab_resnet", 512, 512, 28, 3, 4, 1, ""), ("fcn_resnet", 256, 256, 28, 3, 2, 1, "f"),
    ("ssd_fc6", 512, 1024, 19, 3, 6, 1, ""), ("drn", 128, 128, 56, 3, 2, 1, ""),
    ("enet", 32, 32, 64, 3, 2, 1, "8"), ("enet", 32, 32, 64, 3, 8, 1, ""),
    ("enet", 32, 32, 64, 3, 16, 1, ""), ("context", 21, 21, 64, 3, 16, 1, ""),
    ("csrnet", 512, 512, 28, 3, 2, 1, ""), ("lraspp", 672, 672, 14, 5, 2, 672, "q"),
    ("deeplab_mobile", 960, 960, 33, 3, 2, 960, ""), ("van", 64, 64, 56, 7, 3, 64, ""),
    ("espnet", 25, 25, 64, 3, 4, 1, ""), ("u2net", 64, 16, 80, 3, 8, 1, "f"),
):
    _add("conv-dilated", _name, _in, _out, _image, _window, _more, dilation=_dilation,
         groups=_groups)

# ---- heads of detectors: few or odd numbers of outputs, at 320 to 1280 pixels ----

for _name, _in, _out, _image, _window, _more in (
    ("yolov3_416", 1024, 255, 13, 1, "q"), ("yolov3_416", 512, 255, 26, 1, ""),
    ("yolov3_416", 256, 255, 52, 1, "f"), ("yolov5s_320", 128, 255, 40, 1, ""),
    ("yolov5s_320", 512, 255, 10, 1, "8"), ("yolov5s_640", 128, 255, 80, 1, "q"),
    ("yolov5s_640", 256, 255, 40, 1, ""), ("yolov5s_640", 512, 255, 20, 1, ""),
    ("yolov5s_1280", 128, 255, 160, 1, ""), ("yolov5s_1280", 512, 255, 40, 1, ""),
    ("yolov8n_320", 64, 64, 40, 3, ""), ("yolov8n_320", 64, 80, 40, 1, "8"),
    ("yolov8n_640", 64, 80, 80, 3, "q"), ("yolov8n_640", 80, 80, 80, 3, ""),
    ("yolov8n_640", 80, 80, 80, 1, ""), ("yolov8n_640", 128, 64, 40, 3, "f"),
    ("yolov8n_1280", 64, 80, 160, 1, ""), ("yolov8n_dfl", 16, 1, (4, 8400), 1, ""),
    ("ssd300", 512, 16, 38, 3, ""), ("ssd300", 512, 324, 38, 3, ""),
    ("ssd300", 1024, 24, 19, 3, "q"),
    ("ssd300", 1024, 126, 19, 3, ""), ("ssd300", 512, 84, 10, 3, "8"),
    ("ssd300", 256, 24, 5, 3, ""),
    ("ssd300", 256, 324, 3, 3, "8"), ("ssd300", 256, 16, 1, 3, ""),
    ("ssdlite_320", 672, 546, 20, 1, ""),
    ("ssdlite_320", 480, 24, 10, 1, "q"), ("retinanet_640", 256, 256, 40, 3, ""),
    ("retinanet_640", 256, 720, 20, 3, ""), ("retinanet_640", 256, 36, 40, 3, "f"),
    ("retinanet_1280", 256, 36, 80, 3, ""), ("rpn_800", 256, 3, (50, 76), 1, ""),
    ("rpn_800", 256, 12, (50, 76), 1, ""), ("mask_rcnn", 256, 80, 28, 1, "8"),
    ("centernet_512", 64, 80, 128, 1, ""), ("centernet_512", 64, 2, 128, 1, ""),
    ("efficientdet", 64, 810, 32, 1, ""), ("fcos", 256, 80, (50, 64), 3, ""),
    ("blazeface", 88, 2, 16, 1, ""), ("keypoints", 256, 17, (64, 48), 1, "q"),
):
    _add("conv-head", _name, _in, _out, _image, _window, _more, after="")
