import { Button, Group, Stack, Text } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { KeyValues, Note, Section } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { ApiError } from "../../lib/api.ts";
import { invalidate } from "../../lib/query-keys.ts";
import { formatDateTime } from "../../lib/time.ts";
import type { Agent, ConsentRequest } from "../../lib/wire.ts";
import { allowConsent, consentQuery, denyConsent, goTo } from "./api.ts";
import { ChooseAgent } from "./ChooseAgent.tsx";
import styles from "./Consent.module.css";

interface ConsentProps {
  /** The query parameters; undefined where one occurs twice. */
  parameters: Record<string, string> | undefined;
  agents: Agent[];
  /** The field that searches the agents, where there are many; and the button for more of them. */
  search: ReactNode;
  more: ReactNode;
  /** The form for a new agent, which belongs to another feature. */
  createAgent: (onCreated: (agent: Agent) => void) => ReactNode;
}

/**
 * The consent page: a program requests access to one of the owner's agents. Opening the page grants nothing,
 * nor does a press without the wallet's signature.
 */
export function Consent({ parameters, ...rest }: ConsentProps): ReactNode {
  const query = useQuery({
    ...consentQuery(parameters ?? {}),
    enabled: parameters !== undefined,
  });
  if (parameters === undefined || query.error)
    return (
      <Refusal error={query.error ?? new Error("The program's request repeats a parameter.")} />
    );
  if (!query.data)
    return (
      <QueryStatus query={query} what="the program's request">
        <Skeleton shape="title" />
        <Skeleton shape="block" count={2} />
      </QueryStatus>
    );
  return <Question consent={query.data} {...rest} />;
}

/**
 * Where the redirect URI is known to be the program's, a link back is shown; it is never followed
 * automatically.
 */
function Refusal({ error }: { error: unknown }): ReactNode {
  const { redirectTo, place } = error instanceof ApiError ? error.problem : {};
  return (
    <>
      <PageHeader title="This program cannot be connected" />
      <Stack>
        <ErrorNotice error={error} />
        {typeof redirectTo === "string" && typeof place === "string" && (
          <Group>
            <Button
              onClick={() => {
                goTo(redirectTo);
              }}
            >
              Go back to {place}
            </Button>
          </Group>
        )}
      </Stack>
    </>
  );
}

function Question({
  consent,
  agents,
  createAgent,
  ...list
}: Omit<ConsentProps, "parameters"> & { consent: ConsentRequest }): ReactNode {
  const [made, setMade] = useState<Agent[]>([]);
  const all = [...made, ...agents.filter(({ id }) => made.every((agent) => agent.id !== id))];
  // Undefined for a new agent. The choice stays while a search hides it.
  const [agent, setAgent] = useState(all[0]);
  const answered = (answer: { redirectTo: string }): void => {
    goTo(answer.redirectTo);
  };
  const allow = useMutation({
    mutationFn: (to: Agent) => allowConsent(consent, to),
    onSuccess: answered,
    onSettled: invalidate.afterConnections,
    gcTime: 0,
  });
  const deny = useMutation({
    mutationFn: () => denyConsent(consent),
    onSuccess: answered,
    gcTime: 0,
  });
  const answer = allow.data ?? deny.data;
  if (answer)
    return <Done consent={consent} agent={allow.data && agent} redirectTo={answer.redirectTo} />;
  return (
    <>
      <PageHeader
        title={`Connect ${consent.thirdParty.name}?`}
        lead="A program requests access to one of your agents."
      />
      <Stack gap="lg">
        <Program consent={consent} />
        <ChooseAgent
          {...list}
          agents={all}
          chosen={agent}
          onChoose={setAgent}
          createAgent={createAgent((created) => {
            setMade([created, ...made]);
            setAgent(created);
          })}
        />
        <Section title="What it may do">
          <ul className={styles.powers}>
            <li>Pay as the agent, within the rules you signed.</li>
            <li>See the agent&rsquo;s balance, rules and payments.</li>
            <li>
              It cannot change rules, withdraw, or see your other agents. You can end the connection
              at any time on the agent&rsquo;s page.
            </li>
          </ul>
        </Section>
        {allow.error && <ErrorNotice title="The program was not connected" error={allow.error} />}
        {deny.error && <ErrorNotice title="The program was not notified" error={deny.error} />}
        <Stack gap="sm">
          <Text span c="dimmed" size="sm">
            You sign:{" "}
            <Text span inherit c="bright">
              {consent.label}
            </Text>
          </Text>
          <Group justify="flex-end">
            <PendingButton
              pending={deny.isPending && "Cancelling…"}
              onClick={() => {
                if (!allow.isPending) deny.mutate();
              }}
            >
              Cancel
            </PendingButton>
            <PendingButton
              variant="filled"
              disabled={!agent}
              pending={allow.isPending && "Connecting…"}
              onClick={() => {
                if (agent && !deny.isPending) allow.mutate(agent);
              }}
            >
              {agent ? `Connect to ${agent.name}` : "Connect"}
            </PendingButton>
          </Group>
        </Stack>
      </Stack>
    </>
  );
}

function Program({ consent }: { consent: ConsentRequest }): ReactNode {
  const { thirdParty, place, describedAt, keyExpiresAt } = consent;
  return (
    <Section title="The program">
      <Stack>
        <Note color="yellow">
          Purser has not verified this program or its name. Continue only if you started this
          connection.
        </Note>
        <KeyValues
          rows={[
            ["Name given by the program", <strong key="name">{thirdParty.name}</strong>],
            ["You are sent back to", <strong key="place">{place}</strong>],
            describedAt !== null && ["Described at", describedAt],
            ["Until", formatDateTime(keyExpiresAt)],
          ]}
        />
      </Stack>
    </Section>
  );
}

function Done({
  consent,
  agent,
  redirectTo,
}: {
  consent: ConsentRequest;
  agent: Agent | undefined;
  redirectTo: string;
}): ReactNode {
  const name = consent.thirdParty.name;
  return (
    <>
      <PageHeader
        title={agent ? "Connected" : "Not connected"}
        lead={
          agent
            ? `${name} may now use ${agent.name}. You can close this page when ${name} continues.`
            : `${name} has no access.`
        }
      />
      <Group>
        <Button component="a" variant="filled" href={redirectTo}>
          Go back to {consent.place}
        </Button>
      </Group>
    </>
  );
}
