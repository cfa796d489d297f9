"""`memory=conversation`: prompts are the messages of a chat."""

from hgpo_gym.memory.context import Context
from hgpo_gym.memory.memory import Memory


class Conversation(Memory):
    """Show the whole episode as a chat: each observation is a message of the user, each response one of the assistant.

    The first message has the task, by the prompt template's `first`; later ones are its `turn`. Later prompts have
    the very tokens that were generated, see `policies.conversation_tokens`. A conversation that is longer than
    `engine.max_prompt_tokens` loses its oldest turns: the rest takes at most half of that, and its first message has
    the task. `trainer.rows=episode` learns from an episode as one sequence.

    Args:
        history_length: K, how many past observations the context keys look back: HGPO's hierarchy has the levels 0
            to K.
        key: what counts as the observation in the keys: observation, observation+admissible or observation+action.
    """

    def show(self, context: Context) -> Context:
        return context._replace(conversation=True)
