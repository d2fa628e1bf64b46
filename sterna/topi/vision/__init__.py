"""Detection as tensor expressions: boxes, their suppression, regions of interest."""

from sterna.topi.operators import operator
from sterna.topi.vision import rcnn as rcnn
from sterna.topi.vision import ssd as ssd
from sterna.topi.vision.rcnn import proposal as proposal
from sterna.topi.vision.rcnn import roi_align_nchw as roi_align_nchw
from sterna.topi.vision.rcnn import roi_align_nhwc as roi_align_nhwc
from sterna.topi.vision.rcnn import roi_pool_nchw as roi_pool_nchw
from sterna.topi.vision.ssd import multibox_prior as multibox_prior
from sterna.topi.vision.ssd import multibox_transform_loc as multibox_transform_loc

all_class_non_max_suppression = operator("vision.all_class_non_max_suppression")
get_valid_counts = operator("vision.get_valid_counts")
non_max_suppression = operator("vision.non_max_suppression")
