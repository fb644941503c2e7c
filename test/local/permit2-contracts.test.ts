// Goal: Permit2 and x402's two proxies on the local chain are the published ones, at their addresses, with their
// behaviour.
import t from "tap";
import { x402ExactPermit2ProxyABI, x402UptoPermit2ProxyABI } from "@x402/evm";
import {
  BaseError,
  concat,
  decodeErrorResult,
  domainSeparator,
  encodeFunctionData,
  getContractAddress,
  multicall3Abi,
  parseAbi,
  parseEventLogs,
  type Abi,
  type Address,
  type Hex,
} from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { CREATE2_DEPLOYER } from "../../server/core/networks.ts";
import {
  CREATE2_CONTRACTS,
  create2Artifact,
  MULTICALL3,
} from "../../server/local/chain-contracts.ts";
import { testAccount, testChain } from "../helpers/chain.ts";
import {
  approvePermit2,
  ERC20_ABI,
  EXACT_PROXY,
  isNonceUsed,
  PERMIT2,
  PERMIT2_ABI,
  permit2Message,
  signPermit2,
  UPTO_PROXY,
  type Permit2Message,
} from "../helpers/permit2.ts";

const ADDRESSES = {
  Permit2: PERMIT2,
  X402ExactPermit2Proxy: EXACT_PROXY,
  X402UptoPermit2Proxy: UPTO_PROXY,
};
const TRANSFER = parseAbi([
  "event Transfer(address indexed from, address indexed to, uint256 value)",
]);
/** The published ABI of the upto proxy lacks its base contract's error for an amount of zero. */
const UPTO_ABI: Abi = [...x402UptoPermit2ProxyABI, ...parseAbi(["error InvalidAmount()"])];

function dataOf(error: BaseError): Hex | undefined {
  const revert = error.walk((cause) => typeof (cause as { data?: unknown }).data === "string");
  return (revert as { data?: Hex } | null)?.data;
}

t.test("the contracts", async (t) => {
  const chain = await testChain(t);
  const { publicClient } = chain;
  const sender = chain.walletClient(chain.relayer);
  const payer = privateKeyToAccount(generatePrivateKey());
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  await chain.mint(payer.address, 1_000_000n);
  await approvePermit2(chain, [payer]);
  const balance = (account: Address): Promise<bigint> =>
    publicClient.readContract({
      address: chain.usdc,
      abi: ERC20_ABI,
      functionName: "balanceOf",
      args: [account],
    });
  const permitOf = ({ permitted, nonce, deadline }: Permit2Message) => ({
    permitted,
    nonce,
    deadline,
  });
  /** The error's name, or "ok" when it was mined. */
  const tried = async (to: Address, data: Hex, abi: Abi, from = chain.relayer): Promise<string> => {
    try {
      await publicClient.call({ account: from.address, to, data });
    } catch (error) {
      const data = error instanceof BaseError && dataOf(error);
      if (!data) return String(error);
      return decodeErrorResult({ abi: [...abi, ...PERMIT2_ABI], data }).errorName;
    }
    const hash = await chain.walletClient(from).sendTransaction({ to, data });
    const receipt = await publicClient.waitForTransactionReceipt({ hash });
    return receipt.status === "success" ? "ok" : "reverted";
  };
  const settle = async (message: Permit2Message, given: { signature?: Hex } = {}) => {
    const { to, validAfter } = message.witness;
    const signature = given.signature ?? (await signPermit2(chain, payer, message));
    const args = [permitOf(message), message.from, { to, validAfter }, signature] as const;
    const abi = x402ExactPermit2ProxyABI;
    return encodeFunctionData({ abi, functionName: "settle", args });
  };
  const settleUpto = async (message: Permit2Message, amount: bigint) => {
    const signature = await signPermit2(chain, payer, message);
    const args = [permitOf(message), amount, message.from, message.witness, signature];
    return encodeFunctionData({ abi: UPTO_ABI, functionName: "settle", args });
  };

  for (const name of CREATE2_CONTRACTS) {
    const { address, salt, creationCode, deployedBytecode } = create2Artifact(name);
    t.equal(address, ADDRESSES[name], `${name} has its published address`);
    t.equal(
      getContractAddress({
        opcode: "CREATE2",
        from: CREATE2_DEPLOYER,
        salt,
        bytecode: creationCode,
      }),
      address,
      `${name}: only this creation code results in that address`,
    );
    t.equal(await publicClient.getCode({ address }), deployedBytecode, `${name} is placed`);
    await chain.testClient.setCode({ address, bytecode: "0x" });
    await chain.testClient.setNonce({ address, nonce: 0 });
    const hash = await sender.sendTransaction({
      to: CREATE2_DEPLOYER,
      data: concat([salt, creationCode]),
    });
    await publicClient.waitForTransactionReceipt({ hash });
    t.equal(
      await publicClient.getCode({ address }),
      deployedBytecode,
      `${name}: a real deployment has the same code`,
    );
  }

  await t.test("Permit2's domain separator has its own address and this chain", async (t) => {
    const separator = await publicClient.readContract({
      address: PERMIT2,
      abi: PERMIT2_ABI,
      functionName: "DOMAIN_SEPARATOR",
    });
    const domain = { name: "Permit2", chainId: chain.chainId, verifyingContract: PERMIT2 } as const;
    t.equal(separator, domainSeparator({ domain }));
  });

  await t.test("exact: moves the signed amount to the witness, once", async (t) => {
    const message = permit2Message(chain, payer.address, { to: payee });
    const data = await settle(message);
    t.notOk(await isNonceUsed(chain, payer.address, message.nonce));
    const hash = await sender.sendTransaction({ to: EXACT_PROXY, data });
    const receipt = await publicClient.waitForTransactionReceipt({ hash });
    t.equal(await balance(payee), 1_000n);
    t.ok(await isNonceUsed(chain, payer.address, message.nonce));
    t.same(
      parseEventLogs({
        abi: [...TRANSFER, ...x402ExactPermit2ProxyABI],
        logs: receipt.logs,
      }).map(({ eventName, address }) => [eventName, address.toLowerCase()]),
      [
        ["Transfer", chain.usdc.toLowerCase()],
        ["Settled", EXACT_PROXY.toLowerCase()],
      ],
      "no event contains Permit2's nonce",
    );
    t.comment(`exact over Permit2 alone: ${receipt.gasUsed} gas`);
    t.equal(await tried(EXACT_PROXY, data, x402ExactPermit2ProxyABI as Abi), "InvalidNonce");
  });

  await t.test("exact: no field can be changed", async (t) => {
    const message = permit2Message(chain, payer.address, { to: payee });
    const signature = await signPermit2(chain, payer, message);
    const bent = (change: Partial<Permit2Message>) =>
      settle({ ...message, ...change }, { signature }).then((data) =>
        tried(EXACT_PROXY, data, x402ExactPermit2ProxyABI as Abi),
      );
    const to = testAccount(77).address;
    t.equal(await bent({ witness: { to, validAfter: 0n } }), "InvalidSigner", "another payee");
    t.equal(await bent({ nonce: message.nonce ^ 1n }), "InvalidSigner", "another nonce");
    const more = { token: chain.usdc, amount: 2_000n };
    t.equal(await bent({ permitted: more }), "InvalidSigner", "another amount");
    const early = { to: payee, validAfter: 2n ** 40n };
    t.equal(await bent({ witness: early }), "PaymentTooEarly");
    t.equal(await bent({ deadline: 1n }), "SignatureExpired");
    const direct = permit2Message(chain, payer.address, { to: payee, spender: UPTO_PROXY });
    t.equal(
      await tried(EXACT_PROXY, await settle(direct), x402ExactPermit2ProxyABI as Abi),
      "InvalidSigner",
      "signed for another spender",
    );
  });

  await t.test("a nonce that its payer invalidated is used", async (t) => {
    const message = permit2Message(chain, payer.address, { to: payee });
    const data = encodeFunctionData({
      abi: PERMIT2_ABI,
      functionName: "invalidateUnorderedNonces",
      args: [message.nonce >> 8n, 1n << (message.nonce & 255n)],
    });
    t.equal(await tried(PERMIT2, data, PERMIT2_ABI, { ...payer, privateKey: "0x" }), "ok");
    t.ok(await isNonceUsed(chain, payer.address, message.nonce));
    t.equal(
      await tried(EXACT_PROXY, await settle(message), x402ExactPermit2ProxyABI as Abi),
      "InvalidNonce",
    );
  });

  await t.test("upto: only the named account, at most the signed amount", async (t) => {
    const facilitator = chain.relayer.address;
    const message = permit2Message(chain, payer.address, {
      to: payee,
      amount: 5_000n,
      facilitator,
    });
    const before = await balance(payee);
    const upto = async (amount: bigint, from = chain.relayer): Promise<string> =>
      tried(UPTO_PROXY, await settleUpto(message, amount), UPTO_ABI, from);
    t.equal(await upto(5_001n), "AmountExceedsPermitted");
    t.equal(await upto(0n), "InvalidAmount");
    t.equal(await upto(1_000n, chain.admin), "UnauthorizedFacilitator");
    const batched = encodeFunctionData({
      abi: multicall3Abi,
      functionName: "aggregate3",
      args: [
        [
          {
            target: UPTO_PROXY,
            allowFailure: true,
            callData: await settleUpto(message, 1_000n),
          },
        ],
      ],
    });
    t.equal(await tried(MULTICALL3, batched, multicall3Abi), "ok");
    t.equal(await balance(payee), before, "a batch contract is not the named account");
    t.equal(await upto(1_234n), "ok");
    t.equal(await balance(payee), before + 1_234n);
    t.equal(await upto(1n), "InvalidNonce", "once, whatever is left of the maximum");
  });
});
