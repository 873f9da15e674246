//! A short sequence of bytes kept in place, so that the values which hold it can be copied.

/// Up to `N` bytes. What is behind the length is always zero, so that equal values have equal memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InlineBytes<const N: usize> {
    len: u8,
    bytes: [u8; N],
}

impl<const N: usize> InlineBytes<N> {
    pub(crate) const fn of<const M: usize>(source: [u8; M]) -> Self {
        const { assert!(M <= N && N <= 255) };
        let mut bytes = [0; N];
        let mut index = 0;
        while index < M {
            bytes[index] = source[index];
            index += 1;
        }
        Self { len: M as u8, bytes }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}
