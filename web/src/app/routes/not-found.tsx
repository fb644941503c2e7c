import { Button } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { PageHeader } from "../../components/PageHeader.tsx";

export default function NotFoundScreen(): ReactNode {
  return (
    <>
      <PageHeader
        title="Page not found"
        lead="The address may be wrong, or the page was removed."
      />
      <Button component={Link} to="/agents" variant="filled">
        Go to your agents
      </Button>
    </>
  );
}
