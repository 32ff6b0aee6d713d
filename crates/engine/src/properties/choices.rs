//! Properties that are a choice among names.

/// Defines an enum of named values as the type of a property ([`super::value::PropertyValue`]). The code of a value is its position. A value with several
/// names is shown with the first. The expression is the outcome for another code, and the text names the choices where a text is none of them.
macro_rules! choices {
    (
        $(#[$meta:meta])*
        $Name:ident($other:expr), $Bad:ident($names:literal) {
            $($(#[$($value_meta:tt)+])* $Value:ident = $text:literal $(| $alias:literal)*,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $Name {
            $($(#[$($value_meta)+])* $Value,)*
        }

        impl $Name {
            /// All values, by their codes.
            pub const ALL: &[$Name] = &[$($Name::$Value),*];
        }

        impl $crate::properties::value::PropertyValue for $Name {
            const FORMS: &'static [$crate::properties::value::ValueForm] = &[$($crate::properties::value::ValueForm {
                text: concat!($text $(, "`, `", $alias)*),
                meaning: $crate::properties::choices::docs!($([$($value_meta)+])*).trim_ascii_start(),
            }),*];

            fn encode(self) -> $crate::properties::value::Code {
                self as $crate::properties::value::Code
            }

            fn decode(code: $crate::properties::value::Code) -> Result<$Name, &'static str> {
                usize::try_from(code).ok().and_then(|code| $Name::ALL.get(code)).copied().map_or($other, Ok)
            }

            fn parse(text: &str) -> Result<$Name, alloc::string::String> {
                $crate::properties::value::parse_own(text)
            }

            fn text(self) -> alloc::string::String {
                alloc::string::ToString::to_string(&self)
            }
        }

        impl core::fmt::Display for $Name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(match self {
                    $($Name::$Value => $text,)*
                })
            }
        }

        impl core::str::FromStr for $Name {
            type Err = $Bad;

            fn from_str(text: &str) -> Result<$Name, $Bad> {
                match text {
                    $($text $(| $alias)* => Ok($Name::$Value),)*
                    _ => Err($Bad),
                }
            }
        }

        /// An error: a text is none of the names.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $Bad;

        impl core::fmt::Display for $Bad {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str($names)
            }
        }

        impl core::error::Error for $Bad {}
    };
}

/// Joins the docs among attributes.
macro_rules! docs {
    ($([doc = $doc:literal])* $([default])?) => {
        concat!($($doc),*)
    };
}

pub(crate) use {choices, docs};
