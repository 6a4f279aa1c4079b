"""A character codec: any text, no special tokens but the end; stands for a language model's tokenizer."""


class WordCodec:
    """Ids are code points; 3 ends a turn."""

    eos_id = 3

    def encode(self, text):
        return [ord(character) for character in text]

    def decode(self, ids):
        return "".join(map(chr, ids))

    def prompt(self, prompt):
        return self.encode(prompt if isinstance(prompt, str) else prompt[-1]["content"])
