"""Boxes and regions: references against numbers worked out by hand, types, messages."""

from typing import Any

import numpy as np
import pytest

from sterna import relay
from tests.op.harness import reference


def limits(most: int, overlap: float, least: float) -> list[np.ndarray]:
    """The operands that say how many boxes remain."""
    return [np.array([most]), np.array([overlap], "float32"), np.array([least], "float32")]


def test_boxes_that_overlap_better_ones_are_dropped() -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11],
                       [0, 10.1, 1, 11.1], [0, 100, 1, 101]]], "float32")
    scores = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3]]], "float32")
    name = "vision.all_class_non_max_suppression"
    for given, want in {(3, 0.5, 0.0): [3, 0, 5], (2, 0.5, 0.0): [3, 0], (3, 0.5, 0.4): [3, 0],
                        (9, 1.0, 0.0): [3, 0, 1, 2, 4, 5]}.items():
        rows, count = reference(name, boxes, scores, *limits(*given))
        assert rows[: count[0]].tolist() == [[0, 0, place] for place in want]
        assert not rows[count[0] :].any()
        turned = boxes[..., [2, 3, 0, 1]]
        np.testing.assert_array_equal(reference(name, turned, scores, *limits(*given))[0], rows)
        middle = np.stack([(boxes[..., 1] + boxes[..., 3]) / 2, (boxes[..., 0] + boxes[..., 2]) / 2,
                           boxes[..., 3] - boxes[..., 1], boxes[..., 2] - boxes[..., 0]], -1)
        same = reference(name, middle, scores, *limits(*given), center_point_box=True)[0]
        np.testing.assert_array_equal(same, rows)


def test_rows_of_detections() -> None:
    rows = np.array([[[0, 0.8, 1, 20, 25, 45], [1, 0.7, 30, 60, 50, 80], [0, 0.4, 4, 21, 19, 40],
                      [2, 0.9, 35, 61, 52, 79], [1, 0.5, 100, 60, 70, 110]]], "float32")
    count, places = np.array([4], "int32"), np.arange(5, dtype="int32")[None]
    attrs = {"iou_threshold": 0.7, "force_suppress": True, "top_k": 2, "return_indices": False}
    kept = reference("vision.non_max_suppression", rows, count, places, **attrs)
    assert kept[0, :2].tolist() == rows[0, [3, 0]].tolist()
    assert (kept[0, 2:] == -1).all()
    found, number = reference("vision.non_max_suppression", rows, count, places, iou_threshold=0.4)
    assert number.tolist() == [[3]]
    assert found.tolist() == [[3, 0, 1, -1, -1]]
    counts, good, where = reference("vision.get_valid_counts", rows, score_threshold=0.6)
    assert (counts.tolist(), where.tolist()) == ([3], [[0, 1, 3, -1, -1]])
    np.testing.assert_array_equal(good[0, :3], rows[0, [0, 1, 3]])


def test_regions_of_a_plane_are_planes() -> None:
    y, x = np.mgrid[:16, :16].astype("float64")
    plane = (2 * y - 3 * x)[None, None]
    roi = np.array([[0, 2.0, 3.0, 10.0, 9.0]])
    aligned = reference("vision.roi_align", plane, roi, pooled_size=(3, 4), spatial_scale=1.0,
                        aligned=True)
    rows, columns = 3 + 2 * np.arange(3) + 1 - 0.5, 2 + 2 * np.arange(4) + 1 - 0.5
    np.testing.assert_allclose(aligned[0, 0], 2 * rows[:, None] - 3 * columns)
    pooled = reference("vision.roi_pool", plane, roi, pooled_size=(1, 1), spatial_scale=1.0)
    assert pooled.item() == 2 * 9 - 3 * 2


def test_anchors() -> None:
    made = reference("vision.multibox_prior", np.zeros((1, 3, 1, 2)), sizes=(0.4,), ratios=(1, 4))
    want = [[0.15, 0.3, 0.35, 0.7], [0.05, 0.4, 0.45, 0.6],
            [0.65, 0.3, 0.85, 0.7], [0.55, 0.4, 0.95, 0.6]]
    np.testing.assert_allclose(made[0], want)
    scores = np.array([[[0.3], [0.6], [0.1]]], "float32")
    anchor = np.array([[[0.2, 0.2, 0.4, 0.6]]], "float32")
    stay, move = np.zeros((1, 4), "float32"), np.array([[1, -1, 0, np.log(2) / 0.2]], "float32")
    rows, count = reference("vision.multibox_transform_loc", scores, stay, anchor)
    assert count.tolist() == [1]
    np.testing.assert_allclose(rows[0, 0], [0, 0.6, 0.2, 0.2, 0.4, 0.6], rtol=1e-6)
    rows, _ = reference("vision.multibox_transform_loc", scores, move, anchor)
    np.testing.assert_allclose(rows[0, 0], [0, 0.6, 0.22, 0, 0.42, 0.76], atol=1e-6)


def test_mistakes() -> None:
    boxes, scores = relay.var("boxes", shape=(1, 6, 4)), relay.var("scores", shape=(1, 2, 5))
    with pytest.raises(ValueError, match="the number of boxes in scores is 6, not 5"):
        relay.vision.all_class_non_max_suppression(boxes, scores, 3, 0.5, 0.0)
    data, rois = relay.var("x", shape=(1, 3, 8, 8)), relay.var("rois", shape=(2, 4))
    with pytest.raises(ValueError, match="the length of a region is 5, not 4"):
        relay.vision.roi_align(data, rois, (2, 2), 1.0)


# ---- proposals ----


def test_proposals_by_hand() -> None:
    """Two places 16 apart with one anchor of 32 by 32 each, which stays where it is."""
    scores = np.zeros((1, 2, 1, 2), "float32")
    scores[0, 1, 0] = [0.2, 0.9]
    image = np.array([[64, 100, 1]], "float32")
    how: dict[str, Any] = {"scales": (2,), "ratios": (1,), "rpn_post_nms_top_n": 3}
    still = np.zeros((1, 4, 1, 2), "float32")
    # anchors from -8 to 23 and, 16 further right, from 8 to 39: cut at the image's edges
    right, left = [0, 8, 0, 39, 23], [0, 0, 0, 23, 23]
    got = reference("vision.proposal", scores, still, image, **how)
    np.testing.assert_array_equal(got, [right, left, right])
    # they share 16 of 40 columns
    got = reference("vision.proposal", scores, still, image, threshold=0.39, **how)
    np.testing.assert_array_equal(got, [right, right, right])
    # twice as wide about the centre, and moved by a quarter of the size
    moved = still.copy()
    moved[0, :, 0, 1] = [0.25, 0, np.log(2), 0]
    got = reference("vision.proposal", scores, moved, image, **how)
    np.testing.assert_allclose(got[0], [0, 23.5 + 8 - 31.5, 0, 23.5 + 8 + 31.5, 23], atol=1e-4)
    # both are too small: they are widened, and equal then
    got = reference("vision.proposal", scores, still, image, rpn_min_size=30, **how)
    np.testing.assert_array_equal(got[0], [0, -15, -15, 23 + 15, 23 + 15])


def test_proposals_tell_what_is_wrong() -> None:
    scores, info = relay.var("s", shape=(1, 24, 4, 4)), relay.var("i", shape=(1, 3))
    with pytest.raises(ValueError, match="4 for each anchor, is 48, not 24"):
        relay.vision.proposal(scores, scores, info)


def test_reorg_tells_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="stride 2 divides"):
        relay.vision.yolo_reorg(relay.var("x", shape=(1, 6, 4, 4)), 2)
