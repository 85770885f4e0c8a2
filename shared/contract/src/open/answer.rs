//! Enums of answers, whose variants hold fields: `"abandoned"` or `{"granted": {...}}`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, IgnoredAny, IntoDeserializer, MapAccess, VariantAccess, Visitor};

/// An answer that a newer version may extend. See [`open_answer`].
pub(crate) trait OpenAnswer: Sized {
    /// The known variants, as written.
    const KNOWN: &'static [&'static str];

    /// Reads one of [`OpenAnswer::KNOWN`].
    fn read_known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;

    /// The variant for all others.
    fn unknown(name: String) -> Self;
}

/// Implements `Serialize` and `Deserialize` for an enum that derives both with `#[serde(remote = "Self")]`, has these variants, and has a
/// variant `Unknown { name }` for the others, which is never written.
macro_rules! open_answer {
    ($name:ident: $($variant:literal),+) => {
        impl $crate::open::OpenAnswer for $name {
            const KNOWN: &'static [&'static str] = &[$($variant),+];

            fn read_known<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::deserialize(deserializer)
            }

            fn unknown(name: String) -> Self {
                Self::Unknown { name }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::open::read(deserializer)
            }
        }
    };
}
pub(crate) use open_answer;

/// Reads an answer of any version.
pub(crate) fn read<'de, T: OpenAnswer, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(AnyVariant(PhantomData))
}

struct AnyVariant<T>(PhantomData<T>);

impl<'de, T: OpenAnswer> Visitor<'de> for AnyVariant<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "one of {}, or an answer of a newer version", T::KNOWN.join(", "))
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<T, E> {
        if T::KNOWN.contains(&name) { T::read_known(name.into_deserializer()) } else { Ok(T::unknown(name.to_owned())) }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<T, A::Error> {
        let name = fields.next_key::<String>()?.ok_or_else(|| serde::de::Error::invalid_length(0, &self))?;
        let answer = if T::KNOWN.contains(&name.as_str()) {
            T::read_known(OneVariant { name, fields: &mut fields })?
        } else {
            fields.next_value::<IgnoredAny>()?;
            T::unknown(name)
        };
        match fields.next_key::<IgnoredAny>()? {
            None => Ok(answer),
            Some(_) => Err(serde::de::Error::invalid_length(2, &self)),
        }
    }
}

/// A map whose key was read, as the enum.
struct OneVariant<'a, A> {
    name: String,
    fields: &'a mut A,
}

impl<'de, A: MapAccess<'de>> Deserializer<'de> for OneVariant<'_, A> {
    type Error = A::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_enum(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, 'a, A: MapAccess<'de>> EnumAccess<'de> for OneVariant<'a, A> {
    type Error = A::Error;
    type Variant = Value<'a, A>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self::Variant), Self::Error> {
        Ok((seed.deserialize(self.name.into_deserializer())?, Value(self.fields)))
    }
}

/// The fields of a variant.
struct Value<'a, A>(&'a mut A);

impl<'de, A: MapAccess<'de>> VariantAccess<'de> for Value<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), Self::Error> {
        self.0.next_value::<IgnoredAny>().map(|_| ())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Self::Error> {
        self.0.next_value_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Self::Error> {
        self.0.next_value_seed(Fields::Tuple(length, visitor))
    }

    fn struct_variant<V: Visitor<'de>>(self, names: &'static [&'static str], visitor: V) -> Result<V::Value, Self::Error> {
        self.0.next_value_seed(Fields::Struct(names, visitor))
    }
}

enum Fields<V> {
    Tuple(usize, V),
    Struct(&'static [&'static str], V),
}

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for Fields<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        match self {
            Self::Tuple(length, visitor) => deserializer.deserialize_tuple(length, visitor),
            Self::Struct(names, visitor) => deserializer.deserialize_struct("", names, visitor),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(remote = "Self", rename_all = "snake_case")]
    enum Answer {
        Yes,
        Later {
            wait_ms: u64,
        },
        No(String),
        #[serde(skip)]
        Unknown {
            name: String,
        },
    }
    open_answer!(Answer: "yes", "later", "no");

    /// The enum in a later version.
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Newer {
        Yes,
        Later { wait_ms: u64, why: String },
        No(String),
        Maybe,
        Ask { nodes: Vec<String> },
    }

    fn from_msgpack_and_json(newer: &Newer) -> [Result<Answer, String>; 2] {
        let bytes = rmp_serde::to_vec_named(newer).unwrap_or_default();
        let json = serde_json::to_vec(newer).unwrap_or_default();
        [rmp_serde::from_slice(&bytes).map_err(|error| error.to_string()), serde_json::from_slice(&json).map_err(|error| error.to_string())]
    }

    #[test]
    fn answers_of_a_newer_version_read_as_what_is_known_or_as_unknown() {
        let unknown = |name: &str| Answer::Unknown { name: name.to_owned() };
        let cases = [
            (Newer::Yes, Answer::Yes),
            (Newer::Later { wait_ms: 7, why: "x".to_owned() }, Answer::Later { wait_ms: 7 }),
            (Newer::No("n".to_owned()), Answer::No("n".to_owned())),
            (Newer::Maybe, unknown("maybe")),
            (Newer::Ask { nodes: vec!["n1".to_owned()] }, unknown("ask")),
        ];
        for (newer, expected) in cases {
            for read in from_msgpack_and_json(&newer) {
                assert_eq!(read.as_ref(), Ok(&expected));
            }
        }
    }

    #[test]
    fn malformed_answers_are_refused() {
        for bytes in [&b"\x80"[..], b"\xc0", b"\x07", b"\x82\xa3yes\xc0\xa2no\xa1x", b"\x81\xa5later\xa1x", b"\x81"] {
            assert!(rmp_serde::from_slice::<Answer>(bytes).is_err(), "{bytes:?}");
        }
    }
}
