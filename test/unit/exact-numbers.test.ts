// Goal: no number of an answer changes on its way through the MCP library, in structured content or in a text part.
import t from "tap";
import { ExactNumbers } from "../../server/plugins/agent-tools/exact-numbers.ts";

const ODD =
  '{"a":12345678901234567890,"b":[1e400,-0.10,1.0,1E+2],"c":"7.0 and \\"1e400\\"","d":12}';

t.test("as they came", async (t) => {
  const numbers = new ExactNumbers();
  const parsed = numbers.parse(ODD) as Record<string, unknown>;
  t.equal(parsed["c"], '7.0 and "1e400"', "a text is a text");
  t.equal(parsed["d"], 12, "what does not change is a number all the way");
  t.equal(numbers.restore(JSON.stringify(parsed)), ODD);
  t.not(JSON.stringify(JSON.parse(ODD)), ODD, "without it they change");
});

t.test("also in a text within the message, and in what is streamed", async (t) => {
  const numbers = new ExactNumbers();
  const text = `UNTRUSTED\n${JSON.stringify(numbers.parse(ODD))}`;
  const message = JSON.stringify({ content: [{ type: "text", text }] });
  const sent = new Response(`data: ${message}\n\n`, {
    headers: { "content-type": "text/event-stream" },
  });
  const heard = await numbers.restored(sent).text();
  const { content } = JSON.parse(heard.slice(6)) as { content: { text: string }[] };
  t.equal(content[0]?.text, `UNTRUSTED\n${ODD}`);
});

t.test("what a stranger writes cannot pass for a mark", async (t) => {
  const numbers = new ExactNumbers();
  const forged = '{"n":"number 00000000-0000-0000-0000-000000000000 1","m":1.0}';
  t.equal(numbers.restore(JSON.stringify(numbers.parse(forged))), forged);
});
