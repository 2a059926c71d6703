//! Formats of texts and numbers.

mod address;
mod code;
mod time;
mod uri;

/// A format of texts that is checked. The variants are named after the formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names of the formats say it.
pub enum StringFormat {
    BsonObjectId,
    Byte,
    Cidr,
    CreditCard,
    Date,
    DateTime,
    Duration,
    Email,
    HexColor,
    Hostname,
    Ipv4,
    Ipv6,
    Isbn,
    Isbn10,
    Isbn13,
    LongName,
    Mac,
    Password,
    RgbColor,
    ShortName,
    Ssn,
    Uri,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
}

/// A format of numbers that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names of the formats say it.
pub enum NumberFormat {
    Double,
    Float,
    Int32,
    Int64,
}

// The names of v1.36 without dashes, which upstream ignores: `date-time` equals `datetime`.
const NAMES: [(&str, StringFormat); 26] = [
    ("bsonobjectid", StringFormat::BsonObjectId),
    ("byte", StringFormat::Byte),
    ("cidr", StringFormat::Cidr),
    ("creditcard", StringFormat::CreditCard),
    ("date", StringFormat::Date),
    ("datetime", StringFormat::DateTime),
    ("duration", StringFormat::Duration),
    ("email", StringFormat::Email),
    ("hexcolor", StringFormat::HexColor),
    ("hostname", StringFormat::Hostname),
    ("ipv4", StringFormat::Ipv4),
    ("ipv6", StringFormat::Ipv6),
    ("isbn", StringFormat::Isbn),
    ("isbn10", StringFormat::Isbn10),
    ("isbn13", StringFormat::Isbn13),
    ("k8slongname", StringFormat::LongName),
    ("k8sshortname", StringFormat::ShortName),
    ("mac", StringFormat::Mac),
    ("password", StringFormat::Password),
    ("rgbcolor", StringFormat::RgbColor),
    ("ssn", StringFormat::Ssn),
    ("uri", StringFormat::Uri),
    ("uuid", StringFormat::Uuid),
    ("uuid3", StringFormat::Uuid3),
    ("uuid4", StringFormat::Uuid4),
    ("uuid5", StringFormat::Uuid5),
];

impl StringFormat {
    /// Returns the format of that name, if values of the type can have it.
    pub fn for_type(format: &str, value_type: &str) -> Option<Self> {
        if format.is_empty() || !matches!(value_type, "" | "string") {
            return None;
        }
        let name = format.replace('-', "");
        NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, format)| *format)
    }

    /// Returns whether the text has the format.
    pub fn matches(self, value: &str) -> bool {
        match self {
            Self::BsonObjectId => value.len() == 24 && value.bytes().all(|b| b.is_ascii_hexdigit()),
            Self::Byte => code::is_base64(value),
            Self::Cidr => address::is_cidr(value),
            Self::CreditCard => code::is_credit_card(value),
            Self::Date => time::is_date(value),
            Self::DateTime => time::is_date_time(value),
            Self::Duration => time::is_duration(value),
            Self::Email => address::is_email(value),
            Self::HexColor => code::is_hex_color(value),
            Self::Hostname => address::is_hostname(value),
            Self::Ipv4 => address::is_ipv4(value),
            Self::Ipv6 => address::is_ipv6(value),
            Self::Isbn => code::is_isbn10(value) || code::is_isbn13(value),
            Self::Isbn10 => code::is_isbn10(value),
            Self::Isbn13 => code::is_isbn13(value),
            Self::LongName => api_meta::names::dns1123_subdomain(value).is_empty(),
            Self::Mac => address::is_mac(value),
            Self::Password => true,
            Self::RgbColor => code::is_rgb_color(value),
            Self::ShortName => api_meta::names::dns1123_label(value).is_empty(),
            Self::Ssn => code::is_ssn(value),
            Self::Uri => uri::is_request_uri(value),
            Self::Uuid => code::is_uuid(value, None),
            Self::Uuid3 => code::is_uuid(value, Some('3')),
            Self::Uuid4 => code::is_uuid(value, Some('4')),
            Self::Uuid5 => code::is_uuid(value, Some('5')),
        }
    }
}

impl NumberFormat {
    /// Returns the format of that name, if values of the type can have it.
    pub fn for_type(format: &str, value_type: &str) -> Option<Self> {
        match (value_type, format) {
            ("integer", "int32") => Some(Self::Int32),
            ("integer", "int64") => Some(Self::Int64),
            ("number", "float") => Some(Self::Float),
            ("number", "double") => Some(Self::Double),
            _ => None,
        }
    }

    /// Returns the name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::Float => "float",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
        }
    }
}

#[cfg(test)]
mod tests;
