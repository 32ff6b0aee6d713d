use std::collections::HashMap;

use super::World;
use super::layouts::Layout;
use super::measure::measure;
use super::planning::{Planner, relocate};
use super::population::Shape;

fn world() -> World {
    World::new(Shape::RESEARCH.shortened(64), 2)
}

#[test]
fn a_population_has_the_copies_it_is_made_to_have() {
    for shape in [Shape::MAIL, Shape::RESEARCH] {
        let population = World::new(shape.shortened(16), 0).population;
        let percent = population.copies_percent();
        assert!((percent - shape.copies_percent as f64).abs() < 3.0, "{}: {percent}", shape.name);
    }
}

#[test]
fn no_layout_changes_what_a_file_contains() {
    let world = world();
    let (population, day) = (&world.population, &world.days[0]);
    let oldest = Layout::oldest(population);
    let plan = |planner| relocate(population, &oldest, &world.days[..1], planner).layout;
    let layouts = [
        Layout::native(population),
        Layout::shared_from(population, 8),
        oldest.homes(population, day),
        oldest.hottest(population, day, 1000),
        oldest.copies(population, day, 1000),
        plan(Planner::PRINTED),
        plan(Planner::OURS),
        oldest.clone(),
    ];
    for layout in layouts {
        let mut contents = HashMap::new();
        for (&place, &content) in layout.places.iter().zip(&population.content) {
            assert!(place < layout.free);
            assert_eq!(*contents.entry(place).or_insert(content), content);
        }
    }
}

#[test]
fn only_the_oldest_copy_is_kept_and_idedup_keeps_more() {
    let population = world().population;
    let used = |layout: Layout| layout.free;
    let oldest = used(Layout::oldest(&population));
    // An overwritten block may have been the only one with its content.
    assert!(oldest <= population.contents);
    let [eight, sixteen] = [8, 16].map(|threshold| used(Layout::shared_from(&population, threshold)));
    assert!(oldest < eight && eight <= sixteen && sixteen <= population.content.len() as u32);
}

#[test]
fn a_plan_makes_the_reads_that_it_was_made_of_fewer() {
    let world = world();
    let oldest = Layout::oldest(&world.population);
    let planned = relocate(&world.population, &oldest, &world.days[..1], Planner::OURS);
    let commands = |layout| measure(&world, layout, &world.days[0]).commands;
    assert!(planned.expected.after < planned.expected.before);
    assert!(commands(&planned.layout) < commands(&oldest));
}
