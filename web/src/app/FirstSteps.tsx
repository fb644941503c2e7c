import { Button, Group, Text } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { lazy, type ReactNode, Suspense, useState } from "react";
import { Link } from "react-router";
import { ErrorNotice } from "../components/ErrorNotice.tsx";
import { Section } from "../components/Layout.tsx";
import { toastFailure } from "../components/toast.ts";
import { agentQuery } from "../features/agents/api.ts";
import { firstStepsQuery, hideFirstSteps } from "../features/first-steps/api.ts";
import { Steps } from "../features/first-steps/Steps.tsx";
import { FaucetButton } from "../features/funding/Faucet.tsx";
import { FirstCall } from "../features/marketplace/FirstCall.tsx";
import { atomic } from "../lib/money.ts";
import { loadPart } from "../lib/reachable.ts";
import { queryClient } from "../lib/query-client.ts";
import { keys } from "../lib/query-keys.ts";
import type { Agent, FirstSteps as FirstStepsWire } from "../lib/wire.ts";
import { useInfo } from "../shared/info.ts";
import { useRights } from "../shared/session/OwnerOnly.tsx";
import { hasWallet, useOwner } from "../shared/session/session-context.ts";

// Only after a press.
const FundDialog = lazy(() =>
  loadPart(async () => {
    const { FundDialog: dialog } = await import("../features/funding/FundDialog.tsx");
    return { default: dialog };
  }),
);

/** What is left until the first paid call. The server decides whether it is shown. */
export function FirstSteps({ agentId }: { agentId?: string }): ReactNode {
  const { data } = useQuery(firstStepsQuery);
  const rights = useRights();
  // Once it was on screen it stays until the page is left, so that the receipt of the first call can be read.
  const [wasOpen, setWasOpen] = useState(false);
  if (data?.isOpen === true && !wasOpen) setWasOpen(true);
  const hide = useMutation({
    mutationFn: hideFirstSteps,
    onSuccess: (after) => {
      queryClient.setQueryData(keys.firstSteps, after);
      setWasOpen(false);
    },
    onError: toastFailure("The first steps were not hidden"),
  });
  const id = agentId ?? data?.agentId ?? undefined;
  const isShown = data?.isOpen === true || (wasOpen && data?.steps.paid === true);
  if (!data || id === undefined || rights !== "all" || !isShown) return null;
  return (
    <Section
      title={data.steps.paid ? "Your agent paid for the first time" : "First steps"}
      actions={
        data.isOpen && (
          <Button
            size="xs"
            variant="subtle"
            onClick={() => {
              hide.mutate();
            }}
          >
            Hide
          </Button>
        )
      }
    >
      <StepsOf agentId={id} done={data.steps} />
    </Section>
  );
}

function StepsOf({ agentId, done }: { agentId: string; done: FirstStepsWire["steps"] }): ReactNode {
  const query = useQuery(agentQuery(agentId));
  const { data: agent } = query;
  const isWalletOwner = hasWallet(useOwner());
  if (!agent)
    return query.error && <ErrorNotice title="The agent could not be loaded" error={query.error} />;
  const isFunded = agent.balance === null ? done.funded : atomic(agent.balance) > 0n;
  return (
    <Steps
      steps={[
        {
          title: "Make a key",
          isDone: done.key,
          action: <To page={`/agents/${agentId}/keys`}>Keys of {agent.name}</To>,
        },
        {
          title: "Fund the agent",
          isDone: isFunded || done.paid,
          action: !isFunded && !done.paid && <Fund agent={agent} />,
        },
        {
          title: "Make the first call",
          isDone: done.paid,
          action: <FirstCall agent={agent} isFunded={isFunded} isPaid={done.paid} />,
        },
        {
          title: "Get notified",
          isDone: done.notified,
          action: !done.notified && (
            <Text size="sm">
              <To page="/notifications/devices">On this device</To> or{" "}
              <To page="/notifications/email">by e-mail</To>
            </Text>
          ),
        },
        {
          title: isWalletOwner
            ? "Name a recovery wallet or add a passkey"
            : "Add a second passkey or a recovery wallet",
          isDone: done.recovery,
          action: !done.recovery && <To page="/settings">Choose how you get back in</To>,
        },
      ]}
    />
  );
}

const To = ({ page, children }: { page: string; children: ReactNode }): ReactNode => (
  <Text span size="sm">
    <Link className="link-alone" to={page}>
      {children}
    </Link>
  </Text>
);

function Fund({ agent }: { agent: Agent }): ReactNode {
  const isLocal = useInfo()?.localWorld === true;
  const [isOpen, setOpen] = useState(false);
  if (isLocal) return <FaucetButton agent={agent} />;
  return (
    <Group>
      <Button
        variant="filled"
        size="xs"
        onClick={() => {
          setOpen(true);
        }}
      >
        Fund
      </Button>
      {isOpen && (
        <Suspense fallback={null}>
          <FundDialog
            agent={agent}
            opened
            onClose={() => {
              setOpen(false);
            }}
          />
        </Suspense>
      )}
    </Group>
  );
}
