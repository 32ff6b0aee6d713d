//! The kind of the disk under a pool.

use super::choices::choices;

choices! {
    /// Kind of the disk under a pool, as an operator gives it.
    #[derive(Default)]
    DeviceKind(Err("the disk is of an unknown kind")), BadDeviceKind("it is auto, hdd or ssd") {
        /// Detected whenever the pool is opened.
        #[default]
        Auto = "auto",
        /// A solid-state disk: all places are equally near.
        Ssd = "ssd",
        /// A rotational disk, whose heads take time from one place to another.
        Hdd = "hdd",
    }
}
