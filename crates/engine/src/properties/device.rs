//! The kind of the disk under a pool.

use super::choices::choices;

choices! {
    /// Kind of the disk under a pool, as an operator gives it.
    #[derive(Default)]
    DeviceKind(Err("the disk is of an unknown kind")), BadDeviceKind("it is auto, hdd or ssd") {
        /// Detection by the driver.
        #[default]
        Auto = "auto",
        /// A disk without heads: all places are equally near.
        Ssd = "ssd",
        /// A rotational disk, whose heads take time from one place to another.
        Hdd = "hdd",
    }
}
