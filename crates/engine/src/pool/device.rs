//! The disk under the pool: what was set, or else what the driver says.

use super::Pool;
use crate::device::{DeviceKind, DeviceTraits};

impl Pool {
    /// What it is like.
    #[inline]
    pub(crate) fn device(&self) -> &DeviceTraits {
        &self.device
    }

    /// What was set.
    pub(crate) fn device_kind(&self) -> DeviceKind {
        self.device_kind
    }

    /// An operator has said what the disk is.
    pub(crate) fn set_device_kind(&mut self, kind: DeviceKind) {
        self.device_kind = kind;
        self.review_device();
    }

    /// The driver, or an operator, may have said something else.
    pub(crate) fn review_device(&mut self) {
        self.device = DeviceTraits::of(self.device_kind).unwrap_or(self.limits.device);
        self.review_zones();
    }
}
