//! Room: controller.
