// Goal: no number in third-party JSON changes on its way through the service, and no string in it breaks out of its place.
import * as fc from "fast-check";
import t from "tap";
import {
  ExactJson,
  jsonStringBytes,
  parseExact,
  parseMembers,
  repeatsName,
  stringifyExact,
} from "../../server/core/exact-json.ts";

const ODD = [
  "12345678901234567890",
  "1e400",
  "-1e400",
  "0.1000",
  "-0",
  "1E5",
  "1.0",
  "0.1",
  "42",
  "100000000000000000000000000000.000000000000000001",
];

t.test("numbers keep their digits", async (t) => {
  const json = `{"list":[${ODD.join(",")}],"nested":{"a":[{"b":${ODD[0]}}]},"text":"${ODD[0]}","n":null,"ok":true}`;
  t.equal(stringifyExact(parseExact(json)), json);
  t.equal(
    JSON.parse("12345678901234567890") === 12345678901234567000,
    true,
    "JSON.parse loses digits",
  );
  for (const number of ODD) t.equal(stringifyExact(parseExact(number)), number);
  t.equal(stringifyExact(parseExact(" [1 , 2.50 ] ")), "[1,2.50]");
});

t.test("numbers that a double represents stay numbers, others become their digits", async (t) => {
  t.same(parseExact('{"a":1.5,"b":[0,-7]}'), { a: 1.5, b: [0, -7] });
  const { big } = parseExact('{"big":12345678901234567890}') as { big: ExactJson };
  t.ok(big instanceof ExactJson);
  t.equal(JSON.stringify({ big }), '{"big":"12345678901234567890"}', "never another number");
});

t.test("strings are left alone, whatever they contain", async (t) => {
  for (const text of [
    "1e400",
    '"1e400',
    "\\",
    '\\"1e400\\"',
    "\\\\",
    "a\u0000b",
    "\ud800",
    "x".repeat(100_000),
  ]) {
    const json = JSON.stringify({ [text]: text, big: 0 }).replace(":0}", ":1e400}");
    t.equal(stringifyExact(parseExact(json)), json);
  }
  const long = `{"a":"${"\\n".repeat(1_000_000)}","b":1e400}`;
  t.equal(stringifyExact(parseExact(long)), long);
});

t.test("an embedded document is written unchanged", async (t) => {
  const document = '{"b":1.0,"a":[1,\t2],"a":3,"__proto__":{"x":1}}';
  const json = stringifyExact({
    ours: 1,
    data: new ExactJson(document),
    more: [new ExactJson("-0")],
  });
  t.equal(json, `{"ours":1,"data":${document},"more":[-0]}`);
  t.equal(
    stringifyExact({ a: undefined, n: 5n, when: new Date(0) }),
    '{"n":"5","when":"1970-01-01T00:00:00.000Z"}',
  );
  t.equal(stringifyExact(undefined), "null");
});

t.test("an object with two members of one name is noticed", async (t) => {
  const repeats = (text: string) => repeatsName(text, JSON.parse(text));
  for (const text of [
    '{"amount":"1","amount":"2"}',
    '{"amount":1,"am\\u006funt":1}',
    '{"a":[{"b":{"c":1,"d":2,"c":3}}]}',
    '[{"a":1},{"a":1,"a":1}]',
    '{"a":{"x":1},"a":null}',
    '{"\\"":1,"\\"":2}',
  ])
    t.ok(repeats(text), text);
  for (const text of [
    "{}",
    "[]",
    "null",
    '":"',
    '{"a":":","b":"\\":\\"a\\":1","c:":[":","a",":"]}',
    '{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}',
    '{ "a" : "\\\\" , "\\\\" : 1, "": "" }',
    '{"constructor":1,"0":[[]],"\\u2028":2}',
  ])
    t.notOk(repeats(text), text);
  fc.assert(fc.property(fc.json(), (text) => !repeats(text)));
});

t.test("invalid JSON is refused", async (t) => {
  for (const text of ["", "{", "[1,]", '"', "01", "1e", "NaN", "{'a':1}"])
    t.throws(() => parseExact(text), text);
  const { __proto__: own } = parseExact('{"__proto__":{"x":1e400}}') as Record<string, unknown>;
  t.match(own, {});
  t.equal(({} as Record<string, unknown>)["x"], undefined);
});

t.test("each member of an object keeps its exact text", async (t) => {
  const parts = {
    list: '[1.0, ["]", {"a":[]}], "\\\\"]',
    object: '{ "a}": "{", "b" : 1e400 }',
    text: '"[not a list] \\" {"',
    number: "12345678901234567890",
    none: "null",
  };
  const json = `{${Object.entries(parts)
    .map(([name, text]) => `"${name}":${text}`)
    .join(",")}}`;
  const members = parseMembers(json);
  t.same(Object.keys(members), Object.keys(parts));
  t.equal(stringifyExact(members), json);
  t.match(members, { list: ExactJson, object: ExactJson, text: '[not a list] " {', none: null });
  const short = parseMembers(json, parts.object.length);
  t.match(short["object"], { "a}": "{", b: { text: "1e400" } }, "a short one is parsed");
  t.equal(stringifyExact(short["list"]), parts.list, "a longer one stays text");
});

t.test("the length of text as JSON is counted without writing it", async (t) => {
  const texts = ["", "plain", '"quoted" \\ back', "\u00fc \u20ac \ud83d\ude00", "\u007f\u2028"];
  for (let code = 0; code < 0x20; code += 1) texts.push(String.fromCharCode(code));
  for (const text of texts)
    t.equal(jsonStringBytes(text), Buffer.byteLength(JSON.stringify(text)) - 2);
});
