//! Definition of the parts of the report: a figure, with its docs and its origin, stands in one place.

/// Defines a struct of the report, and its `new`.
///
/// - `from (source: Type, ...)`: a field is `name: type = expression` of the sources; without an expression it is the field of that name of the first
///   source. Behind `where` stand the values that several expressions need.
/// - `of Type`: the fields are those of a struct of the engine, which has no others.
///
/// A struct that ends with `named Type` has fields of this type only, and a method `named`, which returns them with their names: of these a metric has a
/// sample each.
macro_rules! report {
    (@origin $source:ident $field:ident) => {
        $source.$field
    };
    (@origin $source:ident $field:ident $origin:expr) => {
        $origin
    };
    (@struct $(#[$attribute:meta])* $report:ident { $($(#[$of_field:meta])* $field:ident: $type:ty,)+ } $($named:ty)?) => {
        $(#[$attribute])*
        pub struct $report {
            $($(#[$of_field])* pub $field: $type,)+
        }

        report!(@named $report [$($field)+] $($named)?);
    };
    (@named $report:ident [$($field:ident)+]) => {};
    (@named $report:ident [$($field:ident)+] $named:ty) => {
        impl $report {
            /// Returns the figures with their names, in their order.
            pub fn named(&self) -> [(&'static str, &$named); [$(stringify!($field)),+].len()] {
                [$((stringify!($field), &self.$field)),+]
            }
        }
    };
    (
        $(#[$attribute:meta])*
        pub struct $report:ident from ($first:ident: $first_type:ty $(, $source:ident: $source_type:ty)*)
        $(where { $(let $known:pat = $value:expr;)+ })?
        { $($(#[$of_field:meta])* $field:ident: $type:ty $(= $origin:expr)?,)+ }
        $(named $named:ty)?
    ) => {
        report!(@struct $(#[$attribute])* $report { $($(#[$of_field])* $field: $type,)+ } $($named)?);

        impl $report {
            /// Collects the figures from their sources.
            pub fn new($first: $first_type $(, $source: $source_type)*) -> $report {
                $($(let $known = $value;)+)?
                $report { $($field: report!(@origin $first $field $($origin)?),)+ }
            }
        }
    };
    (
        $(#[$attribute:meta])*
        pub struct $report:ident of $counts:ident { $($(#[$of_field:meta])* $field:ident: $type:ty,)+ }
        $(named $named:ty)?
    ) => {
        report!(@struct $(#[$attribute])* $report { $($(#[$of_field])* $field: $type,)+ } $($named)?);

        impl $report {
            /// Takes over the figures of the engine.
            pub fn new(counts: $counts) -> $report {
                let $counts { $($field),+ } = counts;
                $report { $($field),+ }
            }
        }
    };
}

pub(crate) use report;
