// Owners may be contracts: deployed (ERC-1271) or not yet (ERC-6492). A plain key needs no chain at all.
import t from "tap";
import {
  encodeDeployData,
  encodeFunctionData,
  getAddress,
  getContractAddress,
  serializeErc6492Signature,
  type Address,
  type Hex,
} from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { freshNonce, signIn, siweMessage, verify } from "../helpers/owner.ts";
import walletArtifact from "../helpers/contracts/TestWallet.json" with { type: "json" };
import factoryArtifact from "../helpers/contracts/TestWalletFactory.json" with { type: "json" };

const Mode = { Honest: 0, WrongValue: 1, Reverts: 2, BurnsAllGas: 3, Anything: 6 } as const;
const key = privateKeyToAccount(generatePrivateKey());

t.test("smart accounts", async (t) => {
  const chain = await testChain(t);
  const service = await testApp(t, { chain });
  const deployer = chain.walletClient(chain.admin);

  const deploy = async (data: Hex): Promise<Address> => {
    const hash = await deployer.sendTransaction({ data });
    const receipt = await chain.publicClient.waitForTransactionReceipt({ hash });
    return getAddress(receipt.contractAddress as Address);
  };
  const deployWallet = (mode: number): Promise<Address> =>
    deploy(
      encodeDeployData({
        abi: walletArtifact.abi,
        bytecode: walletArtifact.bytecode as Hex,
        args: [key.address, mode],
      }),
    );
  const attempt = async (
    address: Address,
    sign: (message: string) => Promise<Hex>,
    app: TestApp = service,
  ) => {
    const message = siweMessage(app, { nonce: await freshNonce(app.app), address });
    return verify(app, { message, signature: await sign(message) });
  };
  const signed = (message: string): Promise<Hex> => key.signMessage({ message });

  await t.test("a deployed wallet signs in by its owner's signature", async (t) => {
    const wallet = await deployWallet(Mode.Honest);
    const answer = await attempt(wallet, signed);
    t.equal(answer.statusCode, 200, answer.body);
    t.same(answer.json(), { address: wallet });
    const stranger = privateKeyToAccount(generatePrivateKey());
    const forged = await attempt(wallet, (message) => stranger.signMessage({ message }));
    t.equal(forged.json<{ code: string }>().code, "invalid_signature");
  });

  await t.test("a wallet that says no in any way", async (t) => {
    for (const mode of [Mode.WrongValue, Mode.Reverts, Mode.BurnsAllGas]) {
      const wallet = await deployWallet(mode);
      const answer = await attempt(wallet, signed);
      t.equal(answer.statusCode, 401, `mode ${mode}`);
      t.equal(answer.json<{ code: string }>().code, "invalid_signature");
    }
  });

  await t.test("a wallet that is not deployed yet", async (t) => {
    const factory = await deploy(factoryArtifact.bytecode as Hex);
    const salt = `0x${"5a".repeat(32)}` as const;
    const wallet = (await chain.publicClient.readContract({
      address: factory,
      abi: factoryArtifact.abi,
      functionName: "addressOf",
      args: [key.address, Mode.Honest, salt],
    })) as Address;
    const wrapped = async (message: string): Promise<Hex> =>
      serializeErc6492Signature({
        address: factory,
        data: encodeFunctionData({
          abi: factoryArtifact.abi,
          functionName: "create",
          args: [key.address, Mode.Honest, salt],
        }),
        signature: await signed(message),
      });
    const answer = await attempt(wallet, wrapped);
    t.equal(answer.statusCode, 200, answer.body);
    t.same(answer.json(), { address: wallet });
    t.equal(await chain.publicClient.getCode({ address: wallet }), undefined, "still not deployed");

    const elsewhere = getContractAddress({ from: key.address, nonce: 0n });
    const lie = await attempt(elsewhere, wrapped);
    t.equal(
      lie.json<{ code: string }>().code,
      "invalid_signature",
      "another address by that factory",
    );
    const unwrapped = await attempt(wallet, signed);
    t.equal(unwrapped.statusCode, 401, "without saying how to deploy it");
  });

  await t.test("while the RPC is down or hangs", async (t) => {
    const wallet = await deployWallet(Mode.Honest);
    chain.freeze();
    // It has its answer while the node still hangs, and before a caller gives up.
    const startedMs = performance.now();
    const hung = await attempt(wallet, signed);
    chain.thaw();
    t.equal(hung.statusCode, 503, "a contract cannot be asked");
    t.ok(performance.now() - startedMs < 30_000, "bounded");

    await chain.stop();
    const owner = await signIn(service);
    t.ok(owner.cookie, "a key signs in");
    const agents = await service.app.inject({ url: "/api/agents", headers: owner.headers });
    t.equal(agents.statusCode, 200);
    const contract = await attempt(wallet, signed);
    t.equal(contract.statusCode, 503);
    t.equal(contract.json<{ code: string }>().code, "chain_unavailable");
    await chain.start();
    t.equal((await attempt(wallet, signed)).statusCode, 200, "and again when it is back");
  });
});
