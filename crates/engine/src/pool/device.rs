//! The disk under the pool: what was set, or else what the driver says.

use super::Pool;
use crate::device::{DeviceKind, DeviceTraits};

impl Pool {
    /// Returns the traits of the disk: of the kind that was set, or else what the driver says.
    #[inline]
    pub(crate) fn device(&self) -> &DeviceTraits {
        &self.device
    }

    /// Returns the kind of disk that was set.
    pub(crate) fn device_kind(&self) -> DeviceKind {
        self.device_kind
    }

    /// Sets the kind of disk that an operator gives.
    pub(crate) fn set_device_kind(&mut self, kind: DeviceKind) {
        self.device_kind = kind;
        self.review_device();
    }

    /// Takes the traits of the disk anew: the driver, or an operator, may have given others. Zones for copies follow them.
    pub(crate) fn review_device(&mut self) {
        self.device = DeviceTraits::of(self.device_kind).unwrap_or(self.limits.device);
        self.review_zones();
    }
}
