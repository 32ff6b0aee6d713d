//! Traits of the disk under the pool: those of the configured kind, or else those that the driver reports.

use super::Pool;
use crate::device::{DeviceKind, DeviceTraits};

impl Pool {
    /// Returns the traits of the disk: those of the configured kind, or else those that the driver reports.
    #[inline]
    pub(crate) fn device(&self) -> &DeviceTraits {
        &self.properties.device
    }

    /// Returns the configured kind of disk.
    pub(crate) fn device_kind(&self) -> DeviceKind {
        self.properties.device_kind
    }

    /// Sets the kind of disk that an operator gives.
    pub(crate) fn set_device_kind(&mut self, kind: DeviceKind) {
        self.properties.device_kind = kind;
        self.review_device();
    }

    /// Reads the traits of the disk again, because the driver or an operator may have changed them. Updates the zones for copies, too.
    pub(crate) fn review_device(&mut self) {
        self.properties.device = DeviceTraits::of(self.properties.device_kind).unwrap_or(self.limits.device);
        self.review_zones();
    }
}
