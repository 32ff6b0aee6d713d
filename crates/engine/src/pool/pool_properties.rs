//! Properties of the pool. A command sets them at once; the next checkpoint writes them into its superblock ([`Pool::with_properties`]), and recovery
//! adopts those of the superblock that it finds. They are values ([`PoolProperties`]) that every part reads here. Three parts have to follow a change: the read
//! cache its key, the flash its policy, and the zones for copies the device and the replicas.

use super::Pool;
use crate::api::{ControlError, PoolChange};
use crate::format::superblock::Superblock;
use crate::format::volume::Keeps;
use crate::properties::PoolProperties;

impl Pool {
    /// Returns a superblock with the present properties of the pool, as the next checkpoint writes them.
    pub(crate) fn with_properties(&self, superblock: Superblock) -> Superblock {
        Superblock { properties: self.properties, allowance: self.allowance_to_keep(), ..superblock }
    }

    /// Adopts the properties that the superblock has.
    pub(crate) fn adopt_properties(&mut self) {
        self.hints.disk_index.record = self.durable.superblock.disk_index;
        self.set_properties(self.durable.superblock.properties);
    }

    /// Changes properties of the pool. Returns the number of checkpoints after which they are durable.
    pub(crate) fn set_pool(&mut self, change: PoolChange) -> Result<u64, ControlError> {
        if !self.takes_changes() {
            return Err(ControlError::ReadOnly);
        }
        if change.second_copies.is_some_and(|above| above > 0) && self.durable.copies.is_none() {
            self.enter_hidden_volume(Keeps::SecondCopies)?;
        }
        self.set_properties(self.properties.with(&change));
        Ok(self.after_next_checkpoint())
    }

    /// Sets all properties, and lets the parts follow that keep something by them.
    fn set_properties(&mut self, properties: PoolProperties) {
        self.properties = properties;
        self.durable.space_mut().note_discards_changed();
        self.follow_flash_policy();
        self.set_cache_key(properties.cache_key());
        self.review_zones();
    }
}
