import { notifications } from "@mantine/notifications";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { TxHash } from "../../components/Address.tsx";
import { Button, LinkButton } from "../../components/Button.tsx";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { BlockIcon, CheckIcon } from "../../components/icons.tsx";
import { Muted, Note, Row, Section, Stack } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { Select } from "../../components/Select.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { isSameAddress } from "../../lib/address.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { FetchAnswer, Listing } from "../../lib/wire.ts";
import { useExplorer } from "../../shared/info/use-info.ts";
import { agentsQuery, allowPayee, tryListing } from "./api.ts";
import styles from "./TryListing.module.css";

/** Ask what a call would cost this agent and whether its rules allow it; then pay, if the owner says so. */
export function TryListing({ listing }: { listing: Listing }): ReactNode {
  const agents = useQuery(agentsQuery());
  const [chosen, setChosen] = useState("");
  const list = (agents.data ?? []).filter((agent) => agent.network === listing.network);
  const agent = list.find(({ id }) => id === chosen) ?? list[0];
  return (
    <Section title="Try with an agent" hint="The dry run pays nothing.">
      {agents.error && (
        <ErrorNotice
          title="Your agents could not be loaded"
          error={agents.error}
          onRetry={() => void agents.refetch()}
        />
      )}
      {agents.isPending && (
        <Loading label="your agents">
          <Skeleton shape="row" />
        </Loading>
      )}
      {agents.isSuccess && !agent && (
        <Stack gap={3}>
          <p>You have no agent on this network yet.</p>
          <Row>
            <LinkButton to="/agents/new" variant="primary">
              New agent
            </LinkButton>
          </Row>
        </Stack>
      )}
      {agent && (
        <Stack gap={4}>
          <Select
            label="Agent"
            value={agent.id}
            onChange={setChosen}
            options={list.map(({ id, name }) => ({ value: id, label: name }))}
          />
          <AllowSeller
            key={`allow-${agent.id}`}
            agentId={agent.id}
            listing={listing}
            isAllowed={agent.allowlist.some((entry) => isSameAddress(entry.address, listing.payTo))}
          />
          <Trial key={agent.id} agentId={agent.id} listing={listing} />
        </Stack>
      )}
    </Section>
  );
}

function AllowSeller({
  agentId,
  listing,
  isAllowed,
}: {
  agentId: string;
  listing: Listing;
  isAllowed: boolean;
}): ReactNode {
  const allow = useMutation({
    mutationFn: () => allowPayee(agentId, listing.payTo, listing.name),
    onSuccess: () => {
      notifications.show({ message: "The seller is on the agent's allowlist." });
    },
    onSettled: invalidate.afterRules,
  });
  if (isAllowed) return <Muted>This seller is on the agent&rsquo;s allowlist.</Muted>;
  return (
    <Stack gap={2}>
      <Row>
        <Muted>This seller is not on the agent&rsquo;s allowlist.</Muted>
        <Button
          size="small"
          pending={allow.isPending && "Allowing…"}
          onClick={() => {
            allow.mutate();
          }}
        >
          Allow seller
        </Button>
      </Row>
      {allow.error && <ErrorNotice error={allow.error} />}
    </Stack>
  );
}

function Trial({ agentId, listing }: { agentId: string; listing: Listing }): ReactNode {
  const explorer = useExplorer(listing.network);
  const dryRun = useMutation({
    mutationFn: () =>
      tryListing(agentId, { listingId: listing.id, dryRun: true }, crypto.randomUUID()),
  });
  // One key per dry run: pressing twice, or asking again after a lost answer, pays once.
  const [payKey, setPayKey] = useState("");
  const pay = useMutation({
    mutationFn: () =>
      tryListing(agentId, { listingId: listing.id, maxAmount: listing.maxPrice }, payKey),
    onSettled: invalidate.afterPayment,
  });
  const verdict = dryRun.data?.verdict;
  const price = dryRun.data?.price;
  return (
    <Stack gap={4}>
      <Row>
        <Button
          pending={dryRun.isPending && "Asking…"}
          onClick={() => {
            pay.reset();
            setPayKey(crypto.randomUUID());
            dryRun.mutate();
          }}
        >
          Dry run
        </Button>
        {verdict?.allowed === true && !pay.isSuccess && (
          <Button
            variant="primary"
            pending={pay.isPending && "Paying…"}
            onClick={() => {
              pay.mutate();
            }}
          >
            Pay {price !== undefined && <Money amount={price} />}
          </Button>
        )}
      </Row>
      {dryRun.error && (
        <ErrorNotice
          title="The dry run did not work"
          error={dryRun.error}
          onRetry={() => {
            dryRun.mutate();
          }}
        />
      )}
      {verdict && !pay.isSuccess && (
        <Note tone={verdict.allowed ? "ok" : "warn"}>
          <p role="status">
            {verdict.allowed ? (
              <>
                The rules allow it, for <Money amount={price ?? listing.price} />.
              </>
            ) : (
              (verdict.detail ?? "The rules refuse it.")
            )}
          </p>
          <ul className={styles.rules}>
            {verdict.rules.map((rule) => (
              <li key={rule.rule} data-passed={String(rule.passed)}>
                {rule.passed === false ? (
                  <BlockIcon size={14} />
                ) : rule.passed === true ? (
                  <CheckIcon size={14} />
                ) : (
                  <span />
                )}
                <span>
                  {rule.passed === null
                    ? `${rule.rule.replaceAll("_", " ")}: not reached`
                    : rule.detail}
                </span>
              </li>
            ))}
          </ul>
        </Note>
      )}
      {pay.error && (
        <ErrorNotice
          title="Paying did not work"
          error={pay.error}
          onRetry={() => {
            pay.mutate();
          }}
        />
      )}
      {pay.data && <Receipt answer={pay.data} explorer={explorer} />}
    </Stack>
  );
}

function Receipt({
  answer,
  explorer,
}: {
  answer: FetchAnswer;
  explorer: string | undefined;
}): ReactNode {
  const data =
    answer.data === undefined
      ? undefined
      : typeof answer.data === "string"
        ? answer.data
        : JSON.stringify(answer.data, null, 2);
  return (
    <Stack gap={3}>
      <Note tone={answer.delivered ? "ok" : "warn"}>
        <p role="status">
          {answer.paid ? (
            <>
              Paid <Money amount={answer.amountPaid} />
              {answer.delivered ? "." : ", but the seller did not deliver."}
            </>
          ) : (
            "It was free."
          )}{" "}
          <Money amount={answer.remaining} /> of the limit is left.
        </p>
        {answer.txHash !== null && <TxHash value={answer.txHash} explorerUrl={explorer} />}
      </Note>
      {data !== undefined && (
        <CodeBlock
          label={`Answer (${answer.contentType ?? "no type"})`}
          code={data.slice(0, 20_000)}
        />
      )}
    </Stack>
  );
}
