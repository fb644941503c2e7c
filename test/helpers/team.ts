// A team of several people over HTTP: what the tests of teams and of roles share.
import type { FastifyInstance } from "fastify";
import type { Hex } from "viem";
import type { Role } from "../../server/core/teams.ts";
import type { TestApp } from "./app.ts";
import { signOrder, type SignedInOwner } from "./owner.ts";

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
export interface SentRequest {
  method: Method;
  path: string;
  body: object;
}
/** Members of the answers that these tests read. */
export interface Body {
  id: string;
  code: string;
  detail: string;
  owner: string;
  collected: string[];
  isComplete: boolean;
  items: { id: string; type: string; subjectId: string; title: string; path: string }[];
  request: SentRequest;
  warning: string;
  agent: { id: string; walletAddress: Hex };
  apiKey: string;
  key: { id: string };
  order: Record<string, string>;
  signature: Hex;
}
export interface Answer {
  status: number;
  body: Body;
}

/** What the members of a team do, each with an own session. */
export function teamCalls(app: FastifyInstance) {
  async function send(
    who: SignedInOwner,
    method: Method,
    url: string,
    body?: object,
  ): Promise<Answer> {
    const answer = await app.inject({
      method,
      url,
      headers: who.headers,
      ...(body && { payload: JSON.stringify(body) }),
    });
    const [cookie] = [answer.headers["set-cookie"]].flat();
    if (cookie !== undefined) who.headers["cookie"] = cookie.split(";", 1)[0] ?? "";
    return { status: answer.statusCode, body: answer.json<Body>() };
  }
  /** Sends the request, and again with this member's own signature. */
  async function order(
    who: SignedInOwner,
    method: Method,
    url: string,
    body: object,
    second?: SignedInOwner["account"],
  ): Promise<Answer> {
    const asked = await send(who, method, url, body);
    const authorization = await signOrder(who.account, asked.body, second);
    if (!authorization) return asked;
    return send(who, method, url, { ...body, authorization });
  }
  async function signatureOf(who: SignedInOwner, id: string): Promise<Hex> {
    const { body } = await send(who, "GET", `/api/waiting-orders/${id}`);
    const signed = await signOrder(who.account, { ...body, order: {} });
    return signed?.signature ?? "0x00";
  }
  const sign = async (who: SignedInOwner, id: string): Promise<Answer> =>
    send(who, "POST", `/api/waiting-orders/${id}/sign`, { signature: await signatureOf(who, id) });
  const carryOut = (who: SignedInOwner, waiting: Answer): Promise<Answer> => {
    const { method, path, body } = waiting.body.request;
    return send(who, method, path, body);
  };
  const enter = (who: SignedInOwner, owner: string | null): Promise<Answer> =>
    send(who, "POST", "/api/auth/act-for", { owner });
  /** Asks, is signed by everybody named, and is sent by the first. */
  async function together(
    [first, ...others]: readonly [SignedInOwner, ...SignedInOwner[]],
    method: Method,
    url: string,
    body: object,
  ): Promise<Answer> {
    let answer = await order(first, method, url, body);
    const { id } = answer.body;
    for (const who of others) answer = await sign(who, id);
    return others.length === 0 ? answer : carryOut(first, answer);
  }
  return { send, order, signatureOf, sign, carryOut, enter, together };
}

export const entry = ({ account: { address } }: SignedInOwner, name: string, role: Role) => ({
  name,
  address,
  role,
});

/** Makes a team in which everybody acts for it. The first is an admin. Returns its address. */
export async function makeTeam(
  { app }: Pick<TestApp, "app">,
  people: readonly [[SignedInOwner, "admin"], ...[SignedInOwner, Role][]],
  { threshold = 1, approvalAbove = "1", name = "Acme" } = {},
): Promise<string> {
  const { order, enter, together } = teamCalls(app);
  const [[founder]] = people;
  const made = await order(founder, "POST", "/api/teams", { name, memberName: "Founder" });
  if (made.status !== 201) throw new Error(JSON.stringify(made.body));
  const { owner } = made.body;
  await enter(founder, owner);
  const members = people.map(([who, role], index) => entry(who, `Member ${index}`, role));
  const deciding = people.filter(([who, role]) => who !== founder && role !== "viewer");
  const signers = [founder, ...deciding.map(([who]) => who)] as const;
  const list = { name, threshold, approvalAbove, members };
  const changed = await together(signers, "PUT", "/api/team/members", list);
  if (changed.status !== 200) throw new Error(JSON.stringify(changed.body));
  for (const [who] of people.slice(1)) await enter(who, owner);
  return owner;
}
