"""TensorFlow Lite models as graphs."""
