// Goal: a webhook's signature never changes by a byte, so that every receiver that verified yesterday verifies today.
import t from "tap";
import { bodyOf, headersOf, newSecret } from "../../server/plugins/notifications/message.ts";

const at = (seconds: number): Date => new Date(seconds * 1_000 + 999);
const secretOf = (byte: number): string => `whsec_${Buffer.alloc(32, byte).toString("base64")}`;

t.test("the example of the specification", async (t) => {
  const headers = headersOf("msg_p5jXN8AQM9LWM0D4loKWxJek", '{"test": 2432232314}', {
    secrets: ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    at: at(1_614_265_330),
  });
  t.same(headers, {
    "content-type": "application/json",
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
  });
});

t.test("a stored event with text outside of ASCII, under two secrets", async (t) => {
  const id = "ntf_01kc0r5f3x8q2v7n4m6t9w0yzb";
  const body = bodyOf({
    id,
    type: "payment.confirmed",
    createdAt: new Date("2026-11-21T05:00:00.000Z"),
    data: { memo: "Käse 🧀 \ud800", amount: "1.50" },
  });
  const headers = headersOf(id, body, {
    secrets: [secretOf(7), secretOf(255)],
    at: at(1_795_237_200),
  });
  t.equal(
    headers["webhook-signature"],
    "v1,Vsbq3ppSwLQAFMHba5H8Hp/IgUYfL+jRfNvSaJIBcnY= v1,SP34af/nIy4l8CpzkffiVcy3rbrmzflw6DZxhfyENu4=",
  );
});

t.test("a new secret signs, and no two are equal", async (t) => {
  const [one, other] = [newSecret(), newSecret()];
  t.match(one, /^whsec_[A-Za-z0-9+/]{43}=$/);
  t.not(one, other);
  t.match(
    headersOf("ntf_1", "{}", { secrets: [one], at: at(1) })["webhook-signature"],
    /^v1,.{44}$/,
  );
});
