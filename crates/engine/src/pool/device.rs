//! Traits of the disk under the pool: those of the configured kind, or else those that the driver reports.

use super::Pool;
use crate::device::DeviceTraits;
use crate::properties::DeviceKind;

impl Pool {
    /// Returns the traits of the disk: those of the configured kind, or else those that the driver reports.
    #[inline]
    pub(crate) fn device(&self) -> &DeviceTraits {
        match self.properties.device() {
            DeviceKind::Auto => &self.limits.device,
            DeviceKind::Ssd => &DeviceTraits::SSD,
            DeviceKind::Hdd => &DeviceTraits::HDD,
        }
    }
}
